import pytest

from jobtree.importers.slurm.script.shell_text import here_documents, script_lines, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("  --a=1   -b 2 ", ["--a=1", "-b", "2"]),
        ("--name='two words' \"and 'three'\"", ["--name=two words", "and 'three'"]),
        (r'a\ b "c\"d" "e\f"', ["a b", 'c"d', r"e\f"]),
        ("--a # --b", ["--a"]),
        ("--image=nvcr.io#nvidia/x", ["--image=nvcr.io#nvidia/x"]),
        ("--empty= ''", ["--empty=", ""]),
    ],
)
def test_words(text: str, found: list[str]) -> None:
    assert words(text) == found


@pytest.mark.parametrize("text", ['"open', "'open", 'a"b'])
def test_open_quotes(text: str) -> None:
    with pytest.raises(ValueError, match="is not closed"):
        words(text)


def test_here_documents_are_found_and_their_lines_known() -> None:
    script = "a <<EOF\nx\nEOF\nb\n# c <<NO\nd <<-'END' > f\n\ty\n\tEND\ne <<<word\n"
    found = list(here_documents(script))
    assert [(one.number, one.command, one.literal, one.text) for one in found] == [
        (1, "a <<EOF", False, "x\n"),
        (6, "d <<-'END' > f", True, "y\n"),
    ]
    assert [line.number for line in script_lines(script) if line.quoted] == [2, 3, 7, 8]


def test_one_that_never_ends_is_all_inside() -> None:
    (found,) = here_documents("cat <<EOF\none\ntwo")
    assert found.text == "one\ntwo\n"
