import json
from pathlib import Path

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.kube.auth.cluster_access import FILE_SECONDS, Access, find_access, in_cluster
from jobtree.kube.auth.kubeconfig import ClusterEntry, LocatedEntry, Target, UserEntry
from tests.live.certificates import Authority
from tests.unit.kube.clocks import Clock


def target(cluster: ClusterEntry, user: UserEntry, directory: Path = Path()) -> Target:
    return Target(
        "c",
        "default",
        LocatedEntry(cluster, "kc, cluster c", directory),
        LocatedEntry(user, "kc, user u", directory),
    )


def access(user: UserEntry, directory: Path = Path(), clock: Clock | None = None) -> Access:
    return Access(target(ClusterEntry(server="http://west"), user, directory), clock or Clock())


def refused(cluster: ClusterEntry, user: UserEntry, directory: Path = Path()) -> str:
    with pytest.raises(InputError) as error:
        Access(target(cluster, user, directory)).grant()
    return str(error.value)


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("https://west", "https://west:443"),
        ("http://west:8080", "http://west:8080"),
        ("https://10.0.0.1:6443/k8s/clusters/c-1/", "https://10.0.0.1:6443/k8s/clusters/c-1"),
        ("https://[fd00::1]:6443", "https://[fd00::1]:6443"),
    ],
)
def test_where_the_server_is(server: str, url: str) -> None:
    assert Access(target(ClusterEntry(server=server), UserEntry())).endpoint.url == url


@pytest.mark.parametrize("server", ["", "west:6443", "ftp://west", "https://", "https://west:port"])
def test_an_address_that_is_none_is_refused(server: str) -> None:
    message = refused(ClusterEntry(server=server), UserEntry())
    assert message.startswith(
        f"kc, cluster c: server: {json.dumps(server)} is not allowed: must be the address"
    )


def test_a_token_in_a_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "token").write_text("one\n")
    way = access(UserEntry(token_file="token"), tmp_path, clock)  # noqa: S106  the name of a file
    assert way.current() is None
    assert way.grant().headers == (("Authorization", "Bearer one"),)
    (tmp_path / "token").write_text("two\n")
    clock.pass_by(FILE_SECONDS - 1)
    assert way.grant().headers == (("Authorization", "Bearer one"),)
    clock.pass_by(1)
    assert way.grant().headers == (("Authorization", "Bearer two"),)


def test_a_refused_token_is_read_again_at_once_and_only_for_the_first_who_says_so(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    way = access(UserEntry(token_file="token"), tmp_path)  # noqa: S106  the name of a file
    old = way.grant()
    (tmp_path / "token").write_text("two")
    assert way.renew(old)
    new = way.grant()
    assert new.headers == (("Authorization", "Bearer two"),)
    assert way.renew(old)
    assert way.grant() is new, "the new one was not refused"


def test_what_is_written_down_does_not_get_better() -> None:
    way = access(UserEntry(token="abc"))  # noqa: S106  no secret
    assert not way.renew(way.grant())


def test_another_user_is_spoken_for_with_every_group() -> None:
    user = UserEntry(as_="alice", as_uid="7", as_groups=("a", "b"), as_user_extra={"a/b": ("x",)})
    assert access(user).grant().headers == (
        ("Impersonate-User", "alice"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-a%2Fb", "x"),
    )


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sa")
    (tmp_path / "namespace").write_text("jobtree-system\n")
    (tmp_path / "ca.crt").write_text(Authority().certificate)
    way = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert (way.endpoint.url, way.namespace) == ("https://[fd00::1]:6443", "jobtree-system")
    grant = way.grant()
    assert grant.headers == (("Authorization", "Bearer sa"),)
    assert grant.tls is not None
    assert way.renew(grant)
    assert way.grant().tls is grant.tls, "connections are kept per context"


def test_without_any_cluster_it_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="KUBECONFIG names no file that exists"):
        find_access(environ={"KUBECONFIG": str(tmp_path / "nowhere")})


def test_in_a_pod_without_a_kubeconfig_the_pods_own_cluster_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_access(environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).context == "in-cluster"
    with pytest.raises(InputError):
        find_access("other", environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


PAIR = Authority().client("me")
OTHER = Authority().client("me")


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({}, {"token_file": "nowhere"}, "is not allowed: cannot be read: No such file"),
        ({}, {"token_file": "empty"}, "the file is empty"),
        ({}, {"client_certificate": "cert.pem"}, "client-certificate and client-key come together"),
        ({}, {"client_certificate": "gone"}, 'client-certificate: "gone" is not allowed: cannot be read'),
        (
            {},
            {"client_certificate_data": "%"},
            'client-certificate-data: "(not shown)" is not allowed: must be PEM',
        ),
        ({}, {"client_certificate": "cert.pem", "client_key": "other.key"}, "KEY_VALUES_MISMATCH"),
        ({}, {"auth_provider": {"name": "gcp"}}, "auth-provider: is not supported any more"),
        ({}, {"username": "root"}, "username: is not supported any more"),
        ({"certificate_authority": "empty"}, {}, "holds no certificate"),
        ({"certificate_authority": "other.key"}, {}, 'certificate-authority: "other.key" is not allowed'),
        ({"certificate_authority": "gone"}, {}, "cannot be read"),
        ({"proxy_url": "socks5://p"}, {}, "only http:// proxies are supported"),
    ],
)
def test_what_cannot_be_used_is_said_with_its_place(
    tmp_path: Path, cluster: dict[str, str], user: dict[str, object], said: str
) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "cert.pem").write_text(PAIR.public)
    (tmp_path / "other.key").write_text(OTHER.key)
    entry = ClusterEntry(server="https://west", **cluster)  # type: ignore[arg-type]
    message = refused(entry, UserEntry(**user), tmp_path)  # type: ignore[arg-type]
    assert said in message
    assert message.startswith("kc, ")
