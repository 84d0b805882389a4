"""The import verbs refuse broken files with a message; the property tests try many more."""

from pathlib import Path

import pytest

from jobtree.cli.main import main


@pytest.mark.parametrize("words", [["slurm", "--image=i", "--owner=o", "--gpu-type=H"], ["kueue", "-f"]])
@pytest.mark.parametrize("raw", [b"", b"\x00\x01\x02", b"\xff\xfe", b"\r\n", b"{", b"- a", b"#SBATCH --time"])
def test_import_of_a_broken_file_shows_a_message(
    words: list[str], raw: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "input"
    path.write_bytes(raw)
    code = main(["import", *words, str(path)])
    shown = capsys.readouterr()
    assert code in (0, 2), shown.err
    assert "Traceback" not in shown.err
    assert code == 0 or (shown.out == "" and shown.err.startswith("error: "))
