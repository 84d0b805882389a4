"""Runs a Prometheus that scrapes managers and loads the alert rules, and sends it queries."""

import json
import shutil
from math import nan
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.free_ports import free_port
from tests.live.cluster.server_process import wait_until
from tests.queries import ALERTS

SCRAPE = "500ms"
ANSWER_SECONDS = 10

Sample = dict[str, Any]


class Prometheus:
    """A running Prometheus, which ends with its control plane."""

    def __init__(self, plane: ControlPlane, *managers: str) -> None:
        directory = plane.directory / "prometheus"
        directory.mkdir()
        self.url = f"http://127.0.0.1:{free_port()}"
        self.server = plane.launch(
            "prometheus",
            [
                str(shutil.which("prometheus")),
                f"--config.file={write_config(directory, managers)}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
        )
        wait_until(self._is_ready, "Prometheus is ready")

    def _is_ready(self) -> bool:
        self.server.check()
        try:
            with urlopen(f"{self.url}/-/ready", timeout=ANSWER_SECONDS) as answer:  # noqa: S310  our own
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, query: str) -> list[Sample]:
        """Returns the samples of a query. Raises HTTPError if the query is invalid."""
        samples: list[Sample] = self._ask("query", query=query)["result"]
        return samples

    def value(self, query: str) -> float:
        """Returns the only value of a query, or nan if it has no value yet."""
        samples = self.query(query)
        assert len(samples) <= 1, f"{query} has {len(samples)} values"
        return float(samples[0]["value"][1]) if samples else nan

    def rules(self) -> list[Sample]:
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[Sample]:
        targets: list[Sample] = self._ask("targets")["activeTargets"]
        return targets

    def _ask(self, endpoint: str, **parameters: str) -> dict[str, Any]:
        address = f"{self.url}/api/v1/{endpoint}?{urlencode(parameters)}"
        with urlopen(address, timeout=ANSWER_SECONDS) as answer:  # noqa: S310  our own
            data: dict[str, Any] = json.load(answer)["data"]
        return data


def write_config(directory: Path, managers: tuple[str, ...]) -> Path:
    config = {
        "global": {"scrape_interval": SCRAPE, "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "jobtree", "static_configs": [{"targets": list(managers)}]}],
    }
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path
