"""Formats a plan for pipelines: annotations of GitHub Actions, and a report in the format of JUnit."""

from collections.abc import Collection, Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from jobtree.api.kinds.run_plan import RunPlan
from jobtree.client.plans.plan_result import PlanResult, plan_line
from jobtree.core import RunKey

SUITE = "kubectl runs plan"
LEVELS = {"StartsNow": "notice", "Running": "notice", "Finished": "notice"}
UNPRINTABLE = {code: " " for code in range(32) if code not in (9, 10, 13)}


def github_lines(result: PlanResult) -> Iterator[str]:
    """Yields an annotation for each Run: an error if it never starts, a warning if it waits for a date."""
    for plan in result.runs:
        name = f"{plan.metadata.namespace}/{plan.metadata.name}"
        text = "\n".join([plan_line(plan), *reason_lines(plan)])
        yield f"::{github_level(plan)} title={github_property(name)}::{github_text(text)}"


def github_level(plan: RunPlan) -> str:
    return LEVELS.get(plan.status.answer) or ("warning" if has_date(plan) else "error")


def has_date(plan: RunPlan) -> bool:
    reservation = plan.status.reservation
    return reservation is not None and reservation.earliest_start is not None


def github_text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def github_property(text: str) -> str:
    return github_text(text).replace(":", "%3A").replace(",", "%2C")


def reason_lines(plan: RunPlan) -> Iterator[str]:
    """Yields every reason why a Run waits, each with what would help."""
    for cause in plan.status.causes:
        yield f"{cause.reason}: {cause.message}"
        yield from (f"  → {remedy}" for remedy in cause.remedies)


def key_of(plan: RunPlan) -> RunKey:
    return plan.metadata.namespace, plan.metadata.name


def junit_report(result: PlanResult, accepted: Collection[RunKey]) -> str:
    """Returns a test suite with a case for each Run, which fails unless its plan is accepted."""
    failed = [plan for plan in result.runs if key_of(plan) not in accepted]
    counts = {"tests": str(len(result.runs)), "failures": str(len(failed))}
    suites = Element("testsuites", counts)
    suite = SubElement(suites, "testsuite", {"name": SUITE, **counts})
    for plan in result.runs:
        case = SubElement(
            suite, "testcase", {"classname": plan.metadata.namespace, "name": plan.metadata.name}
        )
        if plan in failed:
            message = plan_line(plan).translate(UNPRINTABLE)
            failure = SubElement(case, "failure", {"type": plan.status.answer, "message": message})
            failure.text = "\n".join(reason_lines(plan)).translate(UNPRINTABLE)
    indent(suites)
    return tostring(suites, encoding="unicode", xml_declaration=True)
