"""The main files of the project exist, and what they name exists too."""

import re
import tomllib
from datetime import date
from functools import cache
from pathlib import Path

import pytest
import yaml

from jobtree import __version__
from tests.live.programs.build_recipes import HELM, KUBERNETES
from tests.shown import REPOSITORY

PAGES = (
    ".github/PULL_REQUEST_TEMPLATE.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "changes/README.md",
    "docs/project/support-and-releases.md",
    *(f"docs/maintainers/{path.name}" for path in sorted((REPOSITORY / "docs" / "maintainers").iterdir())),
)
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
FRAGMENTS = sorted(path for path in (REPOSITORY / "changes").iterdir() if path.name != "README.md")
FRAGMENT_NAME = re.compile(rf"[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(KINDS)})\.md")
RELEASE = re.compile(r"^## (\d+)\.(\d+)\.(\d+) \((\d{4}-\d{2}-\d{2})\)$", re.MULTILINE)
TARGETS = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

each_page = pytest.mark.parametrize("name", PAGES)


def text_of(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def anchors_of(text: str) -> set[str]:
    """Returns the anchors of the headings of a page."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Returns the relative links that lead to no file, or to no heading of a file."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        path = page.parent / target if target else page
        if "://" in link:
            continue
        if not path.exists() or (anchor and anchor not in anchors_of(path.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


@each_page
def test_links_of_a_page_lead_to_a_file_and_a_heading(name: str) -> None:
    assert broken_links(REPOSITORY / name) == []


def test_link_without_a_file_or_a_heading_is_reported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title: here\n[a](#a-title-here) [b](#no) [c](page.md) [d](gone.md) [e](https://x.test/)\n"
    )
    assert broken_links(page) == ["#no", "gone.md"]


@each_page
def test_make_targets_that_a_page_names_exist(name: str) -> None:
    targets = re.findall(r"(?:`|^|\$ )make (?:[A-Z]+=\S+ )*([a-z][a-z-]*)", text_of(name), re.MULTILINE)
    assert sorted(set(targets) - TARGETS) == []


@each_page
def test_paths_that_a_page_names_exist(name: str) -> None:
    """Paths from the root of the repository exist, except for those with a placeholder in capitals."""
    top = {path.name for path in REPOSITORY.iterdir()} - {"build"}
    paths = [
        path for path in re.findall(r"`([\w.-]+/[\w./-]+)`", text_of(name)) if path.partition("/")[0] in top
    ]
    assert [
        path for path in paths if not re.search(r"[A-Z]{4}", path) and not (REPOSITORY / path).exists()
    ] == []


@each_page
def test_tests_that_a_page_names_exist(name: str) -> None:
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", text_of(name)))
    assert sorted(named - functions_of_tests()) == []


@cache
def functions_of_tests() -> set[str]:
    """Returns the names of all test functions below tests/."""
    sources = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob("test_*.py")]
    return {
        name for source in sources for name in re.findall(r"^def (test_[a-z0-9_]+)\(", source, re.MULTILINE)
    }


# Contributing, conduct, security


def test_each_page_is_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\(([^)#\s]+)", text_of("README.md") + text_of("CONTRIBUTING.md")))
    assert sorted(page for page in set(PAGES) - linked - {"README.md"} if not page.startswith(".")) == []


def test_each_defence_names_a_test() -> None:
    """Each row of a table of threats has a threat, a defence and at least one test."""
    rows = threats()
    assert len(rows) > 30
    assert [row for row in rows if len(row) != 3 or not re.search(r"`test_\w+`", row[2])] == []


def threats() -> list[list[str]]:
    section = text_of("SECURITY.md").partition("## Threats and defences")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows if row[0].strip() != "threat"]


def test_security_page_names_the_supported_version() -> None:
    minor = __version__.rpartition(".")[0]
    assert f"at present {minor}." in text_of("SECURITY.md")


def test_contributing_lists_what_make_test_runs() -> None:
    rule = text_of("Makefile").partition("\ntest:")[2].partition("\n\n")[0]
    (row,) = [line for line in text_of("CONTRIBUTING.md").splitlines() if line.startswith("| `make test`")]
    for target in re.findall(r"--no-print-directory (\w+)", rule):
        assert f"`{target}`" in row


# Issue forms

FORMS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((REPOSITORY / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
}
FIELDS = {
    "markdown": {"value"},
    "input": {"label", "description", "placeholder"},
    "textarea": {"label", "description", "placeholder", "render"},
    "dropdown": {"label", "description", "options"},
    "checkboxes": {"label", "description", "options"},
}
"""The kinds of form fields that the hosting site accepts, and the attributes of each."""


def test_there_is_a_form_for_each_kind_of_issue_and_no_empty_one() -> None:
    assert set(FORMS) == {"bug", "config", "feature", "question"}
    assert FORMS["config"] == {"blank_issues_enabled": False}


@pytest.mark.parametrize("name", ["bug", "feature", "question"])
def test_issue_form_has_the_parts_that_the_hosting_site_accepts(name: str) -> None:
    form = FORMS[name]
    assert set(form) == {"name", "description", "labels", "body"}
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(set(ids)) == len(ids)
    for part in form["body"]:
        assert set(part) <= {"type", "id", "attributes", "validations"}
        assert set(part["attributes"]) <= FIELDS[part["type"]]
        assert ("label" in part["attributes"]) == (part["type"] != "markdown")
    assert any(part.get("validations") == {"required": True} for part in form["body"])


@pytest.mark.parametrize("name", ["bug", "question"])
def test_issue_form_asks_for_the_version(name: str) -> None:
    (version,) = [part["attributes"] for part in FORMS[name]["body"] if part.get("id") == "version"]
    assert "`kubectl runs version`" in version["description"]


def test_bug_form_names_the_security_page() -> None:
    assert "SECURITY.md" in FORMS["bug"]["body"][0]["attributes"]["value"]


# Changes and releases


def test_each_fragment_is_one_sentence_under_a_kind() -> None:
    wrong = [wrong_with_fragment(path.name, path.read_text(encoding="utf-8")) for path in FRAGMENTS]
    assert [complaint for complaints in wrong for complaint in complaints] == []


def wrong_with_fragment(name: str, text: str) -> list[str]:
    wrong = []
    if not FRAGMENT_NAME.fullmatch(name):
        wrong.append(f"{name} must be named <topic>.<{'|'.join(KINDS)}>.md")
    if not re.fullmatch(r"[`A-Z](?:[^\n]|\n(?!\n))+\.\n", text) or re.search(r"\.\s+[A-Z]", text):
        wrong.append(f"{name} must hold one sentence")
    return wrong


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("shrink-by-groups.fixed.md", "A Run shrinks by\nwhole groups.\n", 0),
        ("verbs.added.md", "`pods` lists the pods of a Run, e.g. its ranks.\n", 0),
        ("shrink.repaired.md", "A Run shrinks by whole groups.\n", 1),
        ("Shrink_Groups.fixed.md", "A Run shrinks by whole groups.\n", 1),
        ("shrink.fixed.txt", "A Run shrinks by whole groups.\n", 1),
        ("shrink.fixed.md", "A Run shrinks by whole groups. It does so at once.\n", 1),
        ("shrink.fixed.md", "A Run shrinks by whole groups\n", 1),
        ("shrink.fixed.md", "", 1),
    ],
)
def test_wrong_fragment_is_reported(name: str, text: str, wrong: int) -> None:
    assert len(wrong_with_fragment(name, text)) == wrong


def test_kinds_of_changes_are_those_that_the_pages_name() -> None:
    for kind in KINDS:
        assert f"`{kind}`" in text_of("changes/README.md")
        assert f"*{kind.capitalize()}*" in text_of("docs/project/support-and-releases.md")


def test_changelog_has_dated_releases_with_the_newest_first() -> None:
    releases = [
        (tuple(map(int, parts[:3])), date.fromisoformat(parts[3])) for parts in RELEASE.findall(changelog())
    ]
    assert len(releases) == len(re.findall(r"^## ", changelog(), re.MULTILINE)) > 0
    assert releases == sorted(releases, reverse=True)
    assert len({number for number, _ in releases}) == len(releases)


def test_changelog_of_the_version_has_whole_sentences() -> None:
    assert ".".join(RELEASE.findall(changelog())[0][:3]) == __version__
    entries = re.findall(r"^- (.+(?:\n  .+)*)", changelog(), re.MULTILINE)
    assert len(entries) > 50
    assert [entry for entry in entries if not entry.endswith(".")] == []


def changelog() -> str:
    return text_of("CHANGELOG.md")


def test_support_page_lists_the_version_as_supported() -> None:
    minor = __version__.rpartition(".")[0]
    assert f"| {minor} | supported |" in text_of("docs/project/support-and-releases.md")


def test_support_page_names_the_versions_that_the_tests_use() -> None:
    page = text_of("docs/project/support-and-releases.md")
    minor = KUBERNETES.version.removeprefix("v").rpartition(".")[0]
    assert f"\n| {minor} | tested:" in page
    assert f"programs of {KUBERNETES.version.removeprefix('v')}" in page
    assert f"tested with Helm {HELM.version.removeprefix('v').rpartition('.')[0]}." in page


def test_support_page_names_the_oldest_version_of_kubernetes_that_the_chart_accepts() -> None:
    chart = yaml.safe_load(text_of("deploy/helm/gpu-fleet/Chart.yaml"))
    oldest = re.match(r">=(\d+\.\d+)\.0-0$", chart["kubeVersion"])
    assert oldest is not None
    assert f"| before {oldest[1]} | refused by the chart |" in text_of("docs/project/support-and-releases.md")


# The package

PROJECT = tomllib.loads(text_of("pyproject.toml"))["project"]


def test_package_has_the_version() -> None:
    assert PROJECT["version"] == __version__


def test_package_has_the_readme_as_its_description() -> None:
    assert (REPOSITORY / PROJECT["readme"]).is_file()


def test_package_names_the_python_that_the_support_page_names() -> None:
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in PROJECT["classifiers"]
    assert f"Jobtree needs Python {oldest} or later." in text_of("docs/project/support-and-releases.md")


def test_package_has_no_address_but_that_of_the_project() -> None:
    """The addresses of the project are those in deploy/, and placeholders are not published."""
    home = yaml.safe_load(text_of("deploy/krew/runs.yaml"))["spec"]["homepage"]
    addresses = PROJECT.get("urls", {}).values()
    assert [url for url in addresses if not url.startswith(home) or url.endswith(".invalid")] == []
