"""The webhook as people meet it, and what goes on without it: everything but new Runs and Budgets."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.live.control_plane import ControlPlane
from tests.live.fleet import Fleet
from tests.live.guarding import (
    BUDGETS,
    HASTY,
    MAIN,
    MANAGED,
    gpu_container,
    label,
    pod,
    pods_of,
    run_of,
    runs_of,
)
from tests.live.hooking import BEFORE_1_30, CONFIGURATIONS, WITHOUT_POLICIES, Hook, await_webhook
from tests.live.managing import BASE, NAMESPACE, REPOSITORY, Manager, Scene, built, install, set_policy
from tests.live.manifests import API_VERSION, Manifest
from tests.live.process import wait_until

NEW = "new-runs-and-budgets-need-jobtree.rq.davidlangworthy.io"


class Hooked:
    """A cluster as it is installed, whose webhook is where the manager is, and no policy holds."""

    def __init__(self, plane: ControlPlane, fleet: Fleet) -> None:
        self.plane = plane
        self.fleet = fleet
        self.hook = Hook()
        self.kubeconfig = install(plane)
        set_policy(plane, HASTY)
        self.hook.apply(plane, BASE)
        self._shared: Manager | None = None

    def manager(self, *flags: str) -> Manager:
        """Another one, which its test ends; the shared one ends before."""
        self.end()
        return Manager(self.plane, self.kubeconfig, *flags)

    def answering(self) -> Manager:
        """One whose webhook answers, shared by tests until one wants another."""
        if self._shared is None or self._shared.has_ended:
            self._shared = Manager(self.plane, self.kubeconfig, *self.hook.flags)
            await_webhook(self.plane)
        return self._shared

    def end(self) -> None:
        if self._shared is not None:
            self._shared.stop()

    def scene(self, name: str) -> Scene:
        scene = Scene(self.plane, self.fleet, name)
        label(self.plane, name, {MANAGED: "true"})
        scene.nodes("nv-a", 2)
        return scene


@pytest.fixture(scope="module")
def hooked() -> Iterator[Hooked]:
    with ControlPlane(WITHOUT_POLICIES) as plane:
        plane.start_controllers()
        plane.start_scheduler()
        made = Hooked(plane, plane.kwok())
        yield made
        made.end()


@pytest.fixture
def answering(hooked: Hooked) -> Manager:
    return hooked.answering()


def owned(name: str, *parents: str, gpus: int = 8) -> Manifest:
    envelopes = [{"name": "main", "flavor": f"GPU-{name.partition(':')[0]}", "concurrency": gpus}]
    spec = {"owner": name, "parents": list(parents), "envelopes": envelopes}
    metadata = {"name": name.replace(":", "-")}
    return {"apiVersion": API_VERSION, "kind": "Budget", "metadata": metadata, "spec": spec}


def submit(hooked: Hooked, path: Path) -> str:
    """What ``kubectl runs submit`` says."""
    command = [sys.executable, "-m", "jobtree.cli.main", "submit", "-f", str(path)]
    environment = hooked.plane.environment() | {"PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=180)
    return done.stdout + done.stderr


# Answers


@pytest.mark.usefixtures("answering")
def test_a_cycle_of_parents_is_refused_when_it_would_close(hooked: Hooked) -> None:
    admin = hooked.plane.rest
    answer = admin.post(BUDGETS, owned("cycle:a", "cycle:b"))
    assert answer.accepted
    assert "spec.parents[0]: cycle:b: has no Budget" in answer.warnings[0]
    closing = owned("cycle:b", "cycle:a")
    wait_until(lambda: not admin.post(f"{BUDGETS}?dryRun=All", closing).accepted, "the webhook knows cycle:a")
    refused = admin.post(BUDGETS, closing)
    assert refused.status == 422
    assert 'spec.parents[0]: "cycle:a" is not allowed: cycle:b → cycle:a → cycle:b' in refused.message
    assert admin.post(BUDGETS, owned("cycle:b")).accepted
    closes = {"spec": {"parents": ["cycle:a"]}}
    wait_until(lambda: not admin.merge(f"{BUDGETS}/cycle-b?dryRun=All", closes).accepted, "it is known too")
    edited = admin.merge(f"{BUDGETS}/cycle-b", closes)
    assert edited.status == 422, "an edit closes it no less"
    assert "is a cycle" in edited.message


@pytest.mark.usefixtures("answering")
def test_runs_that_wait_for_each_other_are_refused_and_oddities_told(hooked: Hooked) -> None:
    scene = hooked.scene("odd")
    scene.budget("a", 8)
    follow = {"follow": {"after": ["two"]}, "funding": {"allowBorrow": True, "sponsors": ["odd:rich"]}}
    manifest = run_of(scene, "one", "a", **follow)
    shown = hooked.plane.kubectl("apply", "-f", "-", stdin=json.dumps(manifest)).stderr
    assert "Warning: spec.follow.after[0]: two: there is no such Run in odd" in shown
    assert "odd:rich: cannot pay: it has no envelope of GPU-odd that lends to odd:a" in shown
    wait_until(lambda: scene.phase("one") == "Waiting", "it waits")
    refused = hooked.plane.rest.post(runs_of(scene), run_of(scene, "two", "a", follow={"after": ["one"]}))
    assert refused.status == 422
    assert "two after one after two is a cycle" in refused.message
    path = hooked.plane.directory / "four.yaml"
    path.write_text(json.dumps(run_of(scene, "four", "a", follow={"after": ["five"]})))
    said = submit(hooked, path)
    assert said.count("warning: spec.follow.after[0]: five: there is no such Run in odd") == 1, said
    nobody = hooked.plane.rest.post(f"{runs_of(scene)}?dryRun=All", run_of(scene, "three", "none"))
    assert "spec.owner: odd:none: neither this owner nor any above it has a Budget" in nobody.warnings[0]


@pytest.mark.usefixtures("answering")
def test_an_envelope_cut_below_what_is_in_use_is_told(hooked: Hooked) -> None:
    scene = hooked.scene("cut")
    scene.budget("a", 16)
    scene.run("r", "a", 16)
    scene.await_running("r", 2)
    path = f"{BUDGETS}/cut-a"

    def used() -> object:
        envelopes = hooked.plane.rest.get(path).body.get("status", {}).get("envelopes", [{}])
        return envelopes[0].get("usedGPUs")

    wait_until(lambda: used() == "16", "the Budget says so")
    envelopes = [{"name": "main", "flavor": scene.flavor, "concurrency": 8}]
    answer = hooked.plane.rest.merge(path, {"spec": {"envelopes": envelopes}})
    assert answer.accepted
    assert "spec.envelopes[0].concurrency: 8: is less than what is in use (16 GPUs)" in answer.warnings[0]


@pytest.mark.usefixtures("answering")
def test_spares_have_one_name_however_often_a_manifest_is_applied(hooked: Hooked) -> None:
    scene = hooked.scene("spare")
    scene.budget("a", 8)
    for number in (1, 1, 2):
        manifest = run_of(scene, "r", "a", sparesPerGroup=number, follow={"after": ["none"]})
        hooked.plane.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        spec = hooked.plane.rest.get(scene.path("r")).body["spec"]
        assert (spec["spares"], spec.get("sparesPerGroup")) == (number, None)


def test_what_one_object_shows_is_refused_with_all_that_is_wrong(hooked: Hooked, answering: Manager) -> None:
    scene = hooked.scene("wrong")
    scene.budget("a", 8)
    template = {"spec": {"containers": [MAIN], "terminationGracePeriodSeconds": 86400}}
    refused = hooked.plane.rest.post(runs_of(scene), run_of(scene, "r", "a", template=template))
    assert refused.status == 422
    assert "spec.template.spec.terminationGracePeriodSeconds" in refused.message
    lines = [one for one in answering.lines() if one["message"] == "refused"]
    (line,) = [one for one in lines if one["name"] == "wrong/r"]
    assert (line["part"], line["name"], line["user"]) == ("webhook", "wrong/r", "admin")


def test_a_standby_answers_like_the_leader_and_goes_on_without_it(hooked: Hooked) -> None:
    elsewhere = Hook()
    with hooked.manager(*elsewhere.flags) as leader:
        wait_until(lambda: leader.said("the webhook is served"), "the leader serves")
        wait_until(lambda: leader.said("this process leads"), "it leads")
        with hooked.manager(*hooked.hook.flags) as standby:
            await_webhook(hooked.plane)
            assert not standby.said("this process leads")
            refused = hooked.plane.rest.post(BUDGETS, owned("self:a:b", "self:a:b"))
            assert not refused.accepted
            leader.kill()
            assert hooked.plane.rest.post(f"{BUDGETS}?dryRun=All", owned("last")).accepted


# Without it


def test_without_it_only_new_runs_and_budgets_wait(hooked: Hooked) -> None:
    plane = hooked.plane
    scene = hooked.scene("down")
    with hooked.manager(*hooked.hook.flags):
        await_webhook(plane)
        scene.budget("a", 8)
        scene.run("runs", "a", 8)
        scene.run("waits", "a", 8)
        scene.await_running("runs", 1)
        scene.await_phase("Reserved", "waits")
    for path, manifest in ((runs_of(scene), run_of(scene, "new", "a")), (BUDGETS, owned("down:b"))):
        refused = plane.rest.post(path, manifest)
        assert refused.status == 500
        assert f'failed calling webhook "{NEW}"' in refused.message
    edits = {"runtime": {"maxDuration": "1h"}}
    assert plane.rest.merge(scene.path("waits"), {"spec": edits}).accepted
    assert plane.rest.merge(f"{BUDGETS}/down-a", {"spec": {"parents": ["down:b"]}}).accepted
    file = plane.directory / "new.yaml"
    file.write_text(json.dumps(run_of(scene, "new", "a")))
    assert "new Runs and Budgets wait for it; what runs goes on" in submit(hooked, file)
    hooked.hook.apply(plane, BEFORE_1_30)  # the rules too, as they would be on an old cluster
    with_gpu = pod("gpu", containers=[gpu_container()])
    unanswered = 'failed calling webhook "jobtree-gpu-pods'
    wait_until(lambda: unanswered in plane.rest.post(pods_of(scene), with_gpu).message, "these hold too")
    assert plane.rest.merge(scene.path("waits"), {"metadata": {"finalizers": None}}).accepted
    assert plane.rest.post(pods_of(scene), pod("plain")).accepted
    assert plane.rest.merge(f"{pods_of(scene)}/plain", {"metadata": {"labels": {"a": "b"}}}).accepted
    labelled = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [MAIN]}}
    deployment = {"selector": {"matchLabels": {"app": "web"}}, "template": labelled}
    web = {"metadata": {"name": "web"}, "spec": deployment}
    assert plane.rest.post(f"/apis/apps/v1/namespaces/{scene.name}/deployments", web).accepted
    wait_until(lambda: len(scene.items(f"{pods_of(scene)}?labelSelector=app%3Dweb")) == 1, "its pod is made")
    assert plane.rest.delete(scene.path("waits")).accepted
    wait_until(lambda: scene.reservations() == [], "the garbage collector took its Reservation")


def test_jobtree_goes_on_where_its_webhook_is_not_reached(hooked: Hooked) -> None:
    """It makes stages and writes status, finalizers and leases, and asks nobody."""
    plane, scene = hooked.plane, hooked.scene("unreached")
    stages = [{"name": "s", "resources": {"gpuType": scene.flavor, "totalGPUs": 8}}]
    with hooked.manager(*hooked.hook.flags):
        await_webhook(plane)
        scene.budget("a", 8)
    hooked.hook.apply(plane, BEFORE_1_30)
    for path in CONFIGURATIONS:
        assert plane.rest.delete(path).accepted

    def let_in() -> bool:
        tree = {"owner": scene.owner("a"), "stages": stages}
        manifest = {**run_of(scene, "tree", "a"), "spec": tree}
        return plane.rest.post(runs_of(scene), manifest).accepted

    wait_until(let_in, "nobody is asked")
    hooked.hook.apply(plane, BEFORE_1_30)
    wait_until(lambda: not plane.rest.post(BUDGETS, owned("unreached:b")).accepted, "nobody answers")
    with hooked.manager():
        scene.await_running("tree-s", 1)
        assert plane.rest.delete(scene.path("tree")).accepted
        wait_until(lambda: scene.pods("tree-s") == [], "its pods are gone")
        wait_until(lambda: not plane.rest.get(scene.path("tree")).accepted, "it is gone")


def test_namespaces_and_all_of_jobtree_can_be_removed_without_it(hooked: Hooked) -> None:
    plane, scene = hooked.plane, hooked.scene("left")
    hooked.hook.apply(plane, BASE)
    with hooked.manager(*hooked.hook.flags):
        await_webhook(plane)
        scene.budget("a", 8)
        scene.run("holds", "a", 8)
        scene.run("waits", "a", 8)
        scene.await_running("holds", 1)
        scene.await_phase("Reserved", "waits")
    hooked.hook.apply(plane, BEFORE_1_30)
    wait_until(lambda: not plane.rest.post(BUDGETS, owned("left:b")).accepted, "nobody answers")
    assert plane.rest.delete(f"/api/v1/namespaces/{scene.name}").accepted
    wait_until(lambda: scene.reservations() == [], "its Reservations are gone")
    going = scene.path("holds")
    wait_until(lambda: "deletionTimestamp" in plane.rest.get(going).body["metadata"], "its Run is going")
    # Jobtree keeps a Run until its leases are ended: where it never comes back, somebody has to say so.
    freed = plane.rest.merge(going, {"metadata": {"finalizers": None}})
    assert freed.accepted, freed.message
    documents = built(plane, BEFORE_1_30) + built(plane, BASE)
    everything = yaml.safe_dump_all(documents)
    plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=everything)
    for namespace in (scene.name, NAMESPACE):
        path = f"/api/v1/namespaces/{namespace}"
        wait_until(lambda: plane.rest.get(path).status == 404, f"{namespace} is gone")  # noqa: B023
