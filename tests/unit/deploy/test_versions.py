"""Chart and manifests have the version of the package."""

import re
from pathlib import Path

import yaml

from jobtree import __version__

DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / "helm" / "gpu-fleet"


def test_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_manifests_name_the_image_of_this_version() -> None:
    image = re.compile(r"(?:image: \S+?:|newTag: )(\d[\w.]*)")
    for path in sorted((DEPLOY / "kustomize").rglob("*.yaml")):
        assert set(image.findall(path.read_text())) <= {__version__}, path
