"""Namespaces that wait for a write get free slots in turn (H4)."""

import asyncio

from jobtree.kube.write.fair_slots import FairSlots


async def order_of_writes(slots: FairSlots, flows: list[str]) -> list[str]:
    """Returns the flows in the order in which their writes begin, when each write takes one step."""
    begun: list[str] = []

    async def write(flow: str) -> None:
        async with slots.slot(flow):
            begun.append(flow)
            await asyncio.sleep(0)

    await asyncio.gather(*(write(flow) for flow in flows))
    return begun


def test_burst_of_one_namespace_delays_another_by_one_slot() -> None:
    flows = ["burst"] * 50 + ["other"] * 2
    begun = asyncio.run(order_of_writes(FairSlots(2), flows))
    assert begun[:8] == ["burst", "burst", "burst", "other", "burst", "other", "burst", "burst"]
    assert sorted(begun) == sorted(flows)


def test_cancelled_writes_give_their_slots_back() -> None:
    async def play() -> list[str]:
        slots = FairSlots(1)
        async with slots.slot("a"):
            waiting = [asyncio.ensure_future(order_of_writes(slots, ["b"])) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()  # while it waits
        waiting[1].cancel()  # when it was given the slot
        await asyncio.gather(*waiting, return_exceptions=True)
        return await order_of_writes(slots, ["c"])

    assert asyncio.run(play()) == ["c"]
