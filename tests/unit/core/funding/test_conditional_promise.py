"""A promise is conditional on the owners of the family whose envelopes it counts on (R10)."""

import pytest

from jobtree.api.schema.quantities import HOUR
from jobtree.core.funding.conditional_promise import is_conditional, owners_counted_on
from jobtree.core.reporting.reservation_codec import promise_from_reservation, reservation_object
from jobtree.core.reporting.reservation_forecast import firm_start
from tests.unit.core.build import T0, budget, envelope, nodes, run
from tests.unit.core.lab import Lab

LENDING = {"allow": True, "to": ["*"]}


def waiting(owner: str, sponsors: list[str] | None = None) -> Lab:
    """A Run that waits for the only node, which is in use for an hour."""
    lab = Lab(
        nodes("nv-a", 1),
        budget("x", 8),
        budget("org"),
        budget("org:rich", 8),
        budget("org:poor"),
        budget("bank", envelope(8, lending=LENDING)),
    )
    lab.submit(run("guest", "x", 8, max_duration="1h"))
    lab.submit(run("waits", owner, 8, at=1, sponsors=sponsors or []))
    return lab


@pytest.mark.parametrize(
    ("owner", "sponsors", "owners", "confidence"),
    [
        pytest.param("org:rich", [], (), "guaranteed", id="own envelope"),
        pytest.param("org:poor", [], ("org:rich",), "conditional", id="envelope of a sibling"),
        pytest.param("lab", ["bank"], (), "guaranteed", id="sponsor"),
    ],
)
def test_promise_names_the_owners_that_may_recall_their_budget(
    owner: str, sponsors: list[str], owners: tuple[str, ...], confidence: str
) -> None:
    lab = waiting(owner, sponsors)
    promise = lab.promise("waits")
    assert promise.at is not None
    assert (owners_counted_on(lab.world, promise), is_conditional(lab.world, promise)) == (
        owners,
        bool(owners),
    )
    reservation = reservation_object(lab.world, lab["waits"], promise)
    assert reservation.status.forecast is not None
    assert reservation.status.forecast.confidence == confidence
    assert reservation.status.forecast.conditional_on == owners
    assert promise_from_reservation(reservation, lab["waits"]) == promise


def test_promise_that_a_window_sets_stays_window_aligned_when_it_is_conditional() -> None:
    """The Reservation says that it is conditional, and a restarted manager still knows the window."""
    lab = Lab(
        nodes("nv-a", 1), budget("org"), budget("org:rich", envelope(8, start=3_600_000)), budget("org:p")
    )
    lab.submit(run("waits", "org:p", 8))
    promise = lab.promise("waits")
    reservation = reservation_object(lab.world, lab["waits"], promise)
    assert reservation.status.forecast is not None
    assert reservation.status.forecast.confidence == "conditional"
    assert promise.window_aligned
    assert promise_from_reservation(reservation, lab["waits"]) == promise


def test_a_conditional_promise_tells_a_later_firm_start() -> None:
    """C14: from hour 4 on its own budget would do. With the family's budget it starts two hours earlier."""
    lab = Lab(nodes("nv-a", 2), budget("org"), budget("org:a", 8), budget("org:b", 8))
    lab.submit(run("mine", "org:a", 8, max_duration="4h"), run("theirs", "org:b", 8, max_duration="2h"))
    lab.submit(run("next", "org:a", 8, at=1))
    assert lab.promised_at("next") == 2 * HOUR
    assert firm_start(lab.world, lab["next"], lab.promise("next")) == T0 + 4 * HOUR


def test_a_firm_promise_tells_no_other_start() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org:a", 8))
    lab.submit(run("mine", "org:a", 8, max_duration="4h"), run("next", "org:a", 8, at=1))
    assert lab.promised_at("next") == 4 * HOUR
    assert firm_start(lab.world, lab["next"], lab.promise("next")) is None
