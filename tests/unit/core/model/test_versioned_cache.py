"""Answers are found again as long as their version is there, and only under that version."""

from jobtree.core.model.versioned_cache import Version, VersionedCache

PODS = VersionedCache[str, int]()
NAMES = VersionedCache[str, str]()


def test_answers_of_two_versions_are_apart() -> None:
    before, after = Version(), Version()
    PODS.at(before)["a"] = 1
    assert PODS.at(before) == {"a": 1}
    assert PODS.at(after) == {}


def test_answers_of_two_caches_about_one_version_are_apart() -> None:
    version = Version()
    PODS.at(version)["a"] = 1
    NAMES.at(version)["a"] = "b"
    assert (PODS.at(version), NAMES.at(version)) == ({"a": 1}, {"a": "b"})


def test_answers_are_valid_again_when_their_version_returns() -> None:
    saved = version = Version()
    PODS.at(version)["a"] = 1
    version = Version()
    assert PODS.at(version) == {}
    version = saved
    assert PODS.at(version) == {"a": 1}
