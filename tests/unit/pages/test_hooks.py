"""The hooks add pages that the menu does not list, and copies of files outside of docs/."""

from pathlib import Path

import pytest
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from pages import hooks


@pytest.fixture
def config(tmp_path: Path) -> MkDocsConfig:
    (tmp_path / "docs" / "decisions").mkdir(parents=True)
    (tmp_path / "sample.yaml").write_text("kind: Run\n")
    (tmp_path / "docs" / "a.md").write_text("[x](../sample.yaml) [y](b.md#part) [z](https://example.com/)\n")
    (tmp_path / "docs" / "room").mkdir()
    decisions = [f"decisions/{name}.md" for name in ("2026-01-01-one", "2026-01-02-two", "README")]
    for page in ("b.md", "room/c.md", *decisions):
        (tmp_path / "docs" / page).write_text("# title\n")
    mkdocs_config = MkDocsConfig(config_file_path=str(tmp_path / "mkdocs.yml"))
    mkdocs_config.load_dict(
        {"docs_dir": "docs", "site_dir": "site", "site_name": "x", "nav": [{"A": [{"a": "a.md"}]}]}
    )
    assert mkdocs_config.validate() == ([], [])
    mkdocs_config.plugins._current_plugin = "hooks"  # as mkdocs sets it while it calls hooks
    return mkdocs_config


def test_menu_has_all_decisions_and_unlisted_pages(config: MkDocsConfig) -> None:
    assert hooks.on_config(config).nav == [
        {"A": [{"a": "a.md"}]},
        {"More": ["b.md", "room/c.md"]},
        {
            "Decisions": [
                "decisions/README.md",
                "decisions/2026-01-02-two.md",
                "decisions/2026-01-01-one.md",
            ]
        },
    ]


def test_files_outside_docs_are_copied_and_linked(config: MkDocsConfig) -> None:
    files = hooks.on_files(Files([]), config)
    copy = files.get_file_from_path("files/sample.yaml")
    assert copy is not None
    assert copy.content_bytes == b"kind: Run\n"
    assert files.get_file_from_path("reference/api.md") is not None
    page = Page("a", File("a.md", config.docs_dir, config.site_dir, use_directory_urls=False), config)
    converted = hooks.on_page_markdown((Path(config.docs_dir) / "a.md").read_text(), page, config, files)
    assert converted == "[x](files/sample.yaml) [y](b.md#part) [z](https://example.com/)\n"


def test_file_name_of_a_manifest_becomes_its_title(config: MkDocsConfig) -> None:
    page = Page("a", File("a.md", config.docs_dir, config.site_dir, use_directory_urls=False), config)
    text = "```yaml\n# run.yaml\nkind: Run\n```\n"
    assert (
        hooks.on_page_markdown(text, page, config, Files([])) == '```yaml title="run.yaml"\nkind: Run\n```\n'
    )
