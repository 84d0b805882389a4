"""Who pays for a batch script: accounts and QOS through the mapping. Nobody's money is guessed at."""

from typing import Any

from jobtree.api.problems import InputError
from jobtree.convert.slurm_map import Quality
from jobtree.convert.slurm_order import Order


def owner_of(order: Order) -> str:
    """The QOS's owner, the account's, or the one the caller names. Raises InputError."""
    account, mapping = order.setting("account"), order.mapping
    mapped = mapping.accounts.get(account.value) if account else None
    found = _quality(order).owner or mapped or order.wishes.owner or mapping.owner
    if found:
        return found
    who = "it names no account"
    if account:
        who = f"the account {account.value} is not under accounts: in the mapping"
    raise InputError(order.script.source, [f"which team pays? {who}: add it there, or say --owner"])


def funding_of(order: Order) -> dict[str, Any]:
    """Other ways to pay that the QOS and the partition stand for."""
    quality = _quality(order)
    funding: dict[str, Any] = {}
    if quality.allow_borrow:
        funding["allowBorrow"] = True
        if quality.max_borrow_gpus is not None:
            funding["maxBorrowGPUs"] = quality.max_borrow_gpus
        funding["sponsors"] = list(quality.sponsors)
    if quality.allow_opportunistic or order.partition.allow_opportunistic:
        funding["allowOpportunistic"] = True
    return funding


def _quality(order: Order) -> Quality:
    setting = order.setting("qos")
    if setting is None:
        return Quality()
    if setting.value not in order.mapping.qos:
        hint = "say under qos: in the mapping who pays for it, or that it may run opportunistically"
        order.note(setting, f"there are no priorities: {hint}")
    return order.mapping.qos.get(setting.value, Quality())
