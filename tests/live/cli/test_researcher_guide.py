"""The commands of the researcher guide succeed on a live cluster, for a user with the roles of the guide."""

import re
import shutil
import subprocess
from pathlib import Path

from tests.live.cli.kubectl_user import KubectlUser
from tests.live.cli.user_cluster import UserCluster
from tests.live.cluster.rbac import bind_role, grant_spend
from tests.live.manager.installation import await_service_account
from tests.shown import REPOSITORY

GUIDE = REPOSITORY / "docs" / "user-guide" / "researcher-guide.md"
SECTION = "## On a live cluster"


def blocks() -> list[list[str]]:
    """Returns the shell commands of the section, block by block."""
    text = GUIDE.read_text(encoding="utf-8").partition(SECTION)[2]
    return [block.strip().splitlines() for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]


def test_commands_of_the_researcher_guide_succeed(user_cluster: UserCluster, tmp_path: Path) -> None:
    plane = user_cluster.plane
    shutil.copytree(REPOSITORY / "config" / "samples", tmp_path / "config" / "samples")
    for domain in ("us-west/gpu-a/nv-a", "us-west/gpu-a/nv-b"):
        user_cluster.fleet.add_nodes(domain, 16, prefix="gpu-a")
    plane.kubectl("apply", "-f", str(tmp_path / "config" / "samples" / "budgets"))
    plane.kubectl("create", "namespace", "rai-sys")
    await_service_account(plane, "rai-sys")
    commands, role_commands = blocks()
    for command in role_commands:
        plane.kubectl(*command.split()[1:])
    user = KubectlUser(plane, "guide", "default", tmp_path)
    bind_role(plane, "jobtree-planner", "guide")
    bind_role(plane, "jobtree-researcher", "guide", "rai-sys")
    grant_spend(plane, "guide", "org:ai:rai:sys")
    for command in commands:
        result = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=user.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    assert "cluster.yaml" in [path.name for path in tmp_path.iterdir()]
