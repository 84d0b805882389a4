import pytest

from jobtree.importers.slurm.script.shell_text import here_documents, script_lines, words


@pytest.mark.parametrize(
    ("text", "documents"),
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
def test_line_is_split_into_words(text: str, documents: list[str]) -> None:
    assert words(text) == documents


@pytest.mark.parametrize("text", ['"open', "'open", 'a"b'])
def test_open_quote_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not closed"):
        words(text)


def test_here_documents_are_found_with_their_lines() -> None:
    script = "a <<EOF\nx\nEOF\nb\n# c <<NO\nd <<-'END' > f\n\ty\n\tEND\ne <<<word\n"
    documents = list(here_documents(script))
    assert [
        (document.number, document.command, document.literal, document.text) for document in documents
    ] == [
        (1, "a <<EOF", False, "x\n"),
        (6, "d <<-'END' > f", True, "y\n"),
    ]
    assert [line.number for line in script_lines(script) if line.quoted] == [2, 3, 7, 8]


def test_here_document_without_an_end_reaches_the_end_of_the_script() -> None:
    (documents,) = here_documents("cat <<EOF\none\ntwo")
    assert documents.text == "one\ntwo\n"
