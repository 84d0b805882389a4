"""Adds the reference pages, and files outside ``docs/`` that pages link to, to the site.

In the repository a page may link to ``../config/samples/…``. The site has only the files below ``docs/``. So
each linked file is copied to ``files/…``, and the link is changed to the copy.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from pages import api, python, verbs, words

REFERENCE: dict[str, Callable[[], str]] = {
    "reference/api.md": api.page,
    "reference/command-line.md": verbs.page,
    "reference/events.md": words.events_page,
    "reference/metrics.md": words.metrics_page,
    "reference/python.md": python.page,
    "reference/reasons.md": words.reasons_page,
}
COPIES = "files"
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)")
NAMED = re.compile(r"^```yaml\n# ([a-z0-9-]+\.yaml)\n", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the index of decisions and all decisions, newest first; below "More", pages that no menu lists."""
    docs = Path(config.docs_dir)
    decisions = sorted(
        (page.relative_to(docs).as_posix() for page in docs.glob("decisions/*.md")), reverse=True
    )
    in_menu = {*_leaves(config.nav), *decisions, *REFERENCE}
    unlisted = sorted({page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} - in_menu)
    config.nav = [*(config.nav or []), *([{"More": unlisted}] if unlisted else []), {"Decisions": decisions}]
    return config


def _leaves(nav: object) -> set[str]:
    if isinstance(nav, str):
        return {nav}
    inside = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ()
    return {leaf for item in inside for leaf in _leaves(item)}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the reference pages and the copies."""
    for name, write in REFERENCE.items():
        files.append(File.generated(config, name, content=write()))
    for source in sorted(outside(Path(config.docs_dir))):
        text = source.read_bytes()
        files.append(File.generated(config, f"{COPIES}/{_below_root(source, config)}", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001  mkdocs'
    """Changes links to files outside ``docs/`` to the copies, and shows names of manifests as titles."""
    here = Path(config.docs_dir, page.file.src_uri).parent

    def link_to_copy(link: re.Match[str]) -> str:
        target = (here / link[1]).resolve()
        if target.is_relative_to(config.docs_dir) or not target.is_file():
            return link[1]
        return os.path.relpath(Path(config.docs_dir, COPIES, _below_root(target, config)), here)

    return NAMED.sub(r'```yaml title="\1"' + "\n", LINK.sub(link_to_copy, markdown))


def outside(docs: Path) -> set[Path]:
    """Returns the files outside ``docs/`` that its pages link to."""
    targets = set()
    for page in docs.rglob("*.md"):
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            if target.is_file() and not target.is_relative_to(docs):
                targets.add(target)
    return targets


def _below_root(path: Path, config: MkDocsConfig) -> str:
    return path.relative_to(Path(config.config_file_path).parent).as_posix()
