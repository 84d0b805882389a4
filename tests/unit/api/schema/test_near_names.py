"""A name that does not exist is answered with the one that was probably meant."""

from jobtree.api.schema.near_names import near_name, suggestion


def test_suggestion_names_a_similar_word_if_there_is_one() -> None:
    assert suggestion("trian", ["train", "eval"]) == "did you mean train?"
    assert suggestion("zzz", ["train", "eval"]) == ""


def test_case_does_not_matter() -> None:
    assert near_name("ORG:AI:Rai:sys", ["org:ai:rai:sys", "org:mm"]) == "org:ai:rai:sys"
    assert near_name("h100-80gb", ["A100-80GB", "H100-80GB"]) == "H100-80GB"


def test_a_word_that_only_shares_some_letters_is_not_suggested() -> None:
    assert near_name("get", ["budgets", "state"]) == ""
