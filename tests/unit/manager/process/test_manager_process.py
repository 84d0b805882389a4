"""A manager waits at its start until the policy is listed and readable."""

from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_resources import CONFIG_MAPS
from jobtree.kube.watch.reflector import Reflector
from jobtree.kube.watch.watch_protocol import WatchProtocol
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.process.manager_process import lacks_policy
from tests.unit.manager.process.test_health import policy


def test_manager_waits_for_a_readable_policy_unless_it_may_not_read_it() -> None:
    view = ClusterView("ns", lambda *_: None, lambda: None)
    store, selector = view.by_resource()[CONFIG_MAPS]
    watch = Reflector(None, WatchProtocol(CONFIG_MAPS, store, selector))  # type: ignore[arg-type]
    assert lacks_policy(view, [watch]), "it has not been listed yet"
    store.finish()
    assert not lacks_policy(view, [watch]), "there is none: the defaults hold"
    store.upsert(policy("maxNotice: soon\n", "1"))
    assert lacks_policy(view, [watch]), "it must be mended first"
    watch.error = StatusError(403, "Forbidden", "you may not")
    assert not lacks_policy(view, [watch])
