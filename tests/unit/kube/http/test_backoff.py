from jobtree.kube.http.backoff import FIRST_SECONDS, MOST_SECONDS, Backoff


def test_waits_double_up_to_a_limit() -> None:
    backoff = Backoff(draw=lambda: 0.0)
    waits = [backoff.seconds() for _ in range(10)]
    assert waits[:3] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS]
    assert waits[-1] == MOST_SECONDS
    backoff.reset()
    assert backoff.seconds() == FIRST_SECONDS


def test_wait_is_shortened_at_random_by_up_to_half() -> None:
    assert Backoff(draw=lambda: 1.0).seconds() == FIRST_SECONDS / 2
    assert len({Backoff().seconds() for _ in range(20)}) > 1


def test_wait_is_longer_than_the_retry_after() -> None:
    assert Backoff(draw=lambda: 1.0).seconds(at_least=5) > 5
