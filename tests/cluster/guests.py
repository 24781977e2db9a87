"""Guests that a test knows by what they say: numbers that they count, and words that they answer.

The numbers tell a guest that goes on from one that stands still or booted again.
"""

from __future__ import annotations

import secrets
from typing import Any

from tests.cluster.kube import Console, Kubectl, console
from tests.cluster.manifests import tiny_vm

TICK = r"tick (\d+)\r?\n"
"""A whole line: without its end, a number may be the first digits of another one."""


def counting_vm(name: str, **spec: Any) -> dict[str, Any]:
    """Return a tiny machine whose guest counts from its first second on."""
    return tiny_vm(name, run="counter", **spec)


def answers(guest: Console, *, timeout: float = 60) -> None:
    """See that a guest answers a new word; what its console repeats comes before that.

    A tiny guest echoes nothing that is typed. The terminal does until the plugin is attached, so a line of the guest must come first.
    """
    word = secrets.token_hex(4)
    guest.type(f"echo {word}\n")
    guest.expect(word, timeout=timeout)


def ticks(kubectl: Kubectl, vm: str) -> list[int]:
    """Return three numbers that a guest counts now, not from what its console repeats."""
    with console(kubectl, vm) as guest:
        guest.expect(TICK)
        answers(guest)
        return [int(guest.expect(TICK)[1]) for _ in range(3)]


def counts_on(kubectl: Kubectl, vm: str, above: int) -> int:
    """See that a guest counts without a gap, above a number; return its newest one."""
    now = ticks(kubectl, vm)
    assert now == list(range(now[0], now[0] + 3))
    assert now[0] > above
    return now[-1]


def is_above(kubectl: Kubectl, vm: str, number: int) -> bool:
    """Return whether a guest's console can be had and shows a greater number soon; it repeats older ones first."""
    with console(kubectl, vm) as guest:
        try:
            while int(guest.expect(TICK, timeout=8)[1]) <= number:
                pass
        except AssertionError:
            return False
        return True
