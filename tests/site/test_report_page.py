"""The report of a replay in a browser: every plot is drawn, and nothing is fetched."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from jobtree.simulation.replay.saved_replay import run
from jobtree.simulation.reports.html_page import page
from jobtree.simulation.reports.statistics import report_of
from jobtree.simulation.schedulers.scheduler_names import POLICIES
from tests.unit.simulation.small_replays import busy_day

PLOTS = 4
DRAWN = """figures => figures.map(figure => {
  const marks = [...figure.querySelectorAll("polyline, polygon")].filter(mark => {
    const box = mark.getBBox();
    return box.width > 10 && mark.getAttribute("points").split(" ").length > 1;
  });
  return [figure.querySelector("figcaption").textContent, marks.length];
})"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    simulation = POLICIES["jobtree"](busy_day(1))
    assert run(simulation)
    path.write_text(page(report_of(simulation, "jobtree", "a busy day")), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [400, 1280])
def test_report_draws_all_plots_and_fetches_nothing(report: Path, browser: Browser, width: int) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 900})
    console: list[str] = []
    requests: list[str] = []
    tab.on("console", lambda message: console.append(message.text))
    tab.on("pageerror", lambda error: console.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(report.as_uri())
    drawn = dict(tab.locator("figure").evaluate_all(DRAWN))
    assert len(drawn) == PLOTS
    assert all(drawn.values()), drawn
    assert console == []
    assert requests == [report.as_uri()]
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.close()
