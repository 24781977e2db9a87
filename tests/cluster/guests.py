"""Guests that count, so a paused or rebooted one shows."""

from __future__ import annotations

import secrets
from typing import Any

from tests.cluster.kube import Console, Kubectl, console
from tests.cluster.manifests import tiny_vm

TICK = r"tick (\d+)\r?\n"


def counting_vm(name: str, **spec: Any) -> dict[str, Any]:
    return tiny_vm(name, run="counter", **spec)


def answers(guest: Console, *, timeout: float = 60) -> None:
    """Check that a guest prints a new random word, so the console is past its replay.

    Callers first expect a line of the guest, because the terminal itself echoes until the plugin is attached.
    """
    word = secrets.token_hex(4)
    guest.type(f"echo {word}\n")
    guest.expect(word, timeout=timeout)


def ticks(kubectl: Kubectl, vm: str) -> list[int]:
    with console(kubectl, vm) as guest:
        guest.expect(TICK)
        answers(guest)
        return [int(guest.expect(TICK)[1]) for _ in range(3)]


def counts_on(kubectl: Kubectl, vm: str, above: int) -> int:
    now = ticks(kubectl, vm)
    assert now == list(range(now[0], now[0] + 3))
    assert now[0] > above
    return now[-1]


def is_above(kubectl: Kubectl, vm: str, number: int) -> bool:
    with console(kubectl, vm) as guest:
        try:
            while int(guest.expect(TICK, timeout=8)[1]) <= number:
                pass
        except AssertionError:
            return False
        return True
