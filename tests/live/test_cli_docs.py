"""The commands that the researcher guide shows for a live cluster work on one, by a user with those roles."""

import re
import shutil
import subprocess
from pathlib import Path

from tests.live.managing import REPOSITORY, await_account
from tests.live.person import Person, bind, let_spend
from tests.live.stage import Stage

GUIDE = REPOSITORY / "docs" / "user-guide" / "researcher-guide.md"
SECTION = "## On a live cluster"


def blocks() -> list[list[str]]:
    """The shell commands of that section, block by block."""
    text = GUIDE.read_text(encoding="utf-8").partition(SECTION)[2]
    return [block.strip().splitlines() for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]


def test_the_guide_s_commands_work(stage: Stage, tmp_path: Path) -> None:
    plane = stage.plane
    shutil.copytree(REPOSITORY / "config" / "samples", tmp_path / "config" / "samples")
    for domain in ("us-west/gpu-a/nv-a", "us-west/gpu-a/nv-b"):
        stage.fleet.add_nodes(domain, 16, prefix="gpu-a")
    plane.kubectl("apply", "-f", str(tmp_path / "config" / "samples" / "budgets"))
    plane.kubectl("create", "namespace", "rai-sys")
    await_account(plane, "rai-sys")
    work, roles = blocks()
    for command in roles:
        plane.kubectl(*command.split()[1:])
    guide = Person(plane, "guide", "default", tmp_path)
    bind(plane, "jobtree-planner", "guide")
    bind(plane, "jobtree-researcher", "guide", "rai-sys")
    let_spend(plane, "guide", "org:ai:rai:sys")
    for command in work:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=guide.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert "cluster.yaml" in [path.name for path in tmp_path.iterdir()]
