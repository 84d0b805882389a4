import json
from pathlib import Path

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.kube.auth.cluster_access import FILE_SECONDS, Access, find_access, in_cluster
from jobtree.kube.auth.kubeconfig import ClusterEntry, LocatedEntry, Target, UserEntry
from tests.live.cluster.certificates import Authority
from tests.unit.kube.clocks import Clock


def target(cluster: ClusterEntry, user: UserEntry, directory: Path = Path()) -> Target:
    return Target(
        "c",
        "default",
        LocatedEntry(cluster, "kc, cluster c", directory),
        LocatedEntry(user, "kc, user u", directory),
    )


def access_for(user: UserEntry, directory: Path = Path(), clock: Clock | None = None) -> Access:
    return Access(target(ClusterEntry(server="http://west"), user, directory), clock or Clock())


def refused(cluster: ClusterEntry, user: UserEntry, directory: Path = Path()) -> str:
    with pytest.raises(InputError) as error:
        Access(target(cluster, user, directory)).credentials()
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
def test_endpoint_is_the_server_with_its_default_port(server: str, url: str) -> None:
    assert Access(target(ClusterEntry(server=server), UserEntry())).endpoint.url == url


@pytest.mark.parametrize("server", ["", "west:6443", "ftp://west", "https://", "https://west:port"])
def test_invalid_server_address_is_refused(server: str) -> None:
    message = refused(ClusterEntry(server=server), UserEntry())
    assert message.startswith(
        f"kc, cluster c: server: {json.dumps(server)} is not allowed: must be the address"
    )


def test_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "token").write_text("one\n")
    access = access_for(UserEntry(token_file="token"), tmp_path, clock)  # noqa: S106  the name of a file
    assert access.current() is None
    assert access.credentials().headers == (("Authorization", "Bearer one"),)
    (tmp_path / "token").write_text("two\n")
    clock.pass_by(FILE_SECONDS - 1)
    assert access.credentials().headers == (("Authorization", "Bearer one"),)
    clock.pass_by(1)
    assert access.credentials().headers == (("Authorization", "Bearer two"),)


def test_refused_token_is_read_again_at_once_but_only_once(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    access = access_for(UserEntry(token_file="token"), tmp_path)  # noqa: S106  the name of a file
    old = access.credentials()
    (tmp_path / "token").write_text("two")
    assert access.renew(old)
    new = access.credentials()
    assert new.headers == (("Authorization", "Bearer two"),)
    assert access.renew(old)
    assert access.credentials() is new, "the new token was not refused"


def test_token_in_the_kubeconfig_is_not_renewed() -> None:
    access = access_for(UserEntry(token="abc"))  # noqa: S106  no secret
    assert not access.renew(access.credentials())


def test_impersonation_has_a_header_for_every_group() -> None:
    user = UserEntry(as_="alice", as_uid="7", as_groups=("a", "b"), as_user_extra={"a/b": ("x",)})
    assert access_for(user).credentials().headers == (
        ("Impersonate-User", "alice"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-a%2Fb", "x"),
    )


def test_pod_uses_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sa")
    (tmp_path / "namespace").write_text("jobtree-system\n")
    (tmp_path / "ca.crt").write_text(Authority().certificate)
    access = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert (access.endpoint.url, access.namespace) == ("https://[fd00::1]:6443", "jobtree-system")
    credentials = access.credentials()
    assert credentials.headers == (("Authorization", "Bearer sa"),)
    assert credentials.tls is not None
    assert access.renew(credentials)
    assert access.credentials().tls is credentials.tls, "connections are kept per context"


def test_error_says_where_it_looked_when_there_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="KUBECONFIG names no file that exists"):
        find_access(environ={"KUBECONFIG": str(tmp_path / "nowhere")})


def test_pod_without_a_kubeconfig_uses_its_own_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_access(environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).context == "in-cluster"
    with pytest.raises(InputError):
        find_access("other", environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


PAIR = Authority().client("me")
OTHER = Authority().client("me")


@pytest.mark.parametrize(
    ("cluster", "user", "expected"),
    [
        ({}, {"token_file": "nowhere"}, "is not allowed: cannot be read: No such file"),
        ({}, {"token_file": "empty"}, "the file is empty"),
        ({}, {"client_certificate": "cert.pem"}, "client-certificate and client-key must be set together"),
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
def test_unusable_credentials_are_refused_with_their_place(
    tmp_path: Path, cluster: dict[str, str], user: dict[str, object], expected: str
) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "cert.pem").write_text(PAIR.public)
    (tmp_path / "other.key").write_text(OTHER.key)
    entry = ClusterEntry(server="https://west", **cluster)  # type: ignore[arg-type]
    message = refused(entry, UserEntry(**user), tmp_path)  # type: ignore[arg-type]
    assert expected in message
    assert message.startswith("kc, ")
