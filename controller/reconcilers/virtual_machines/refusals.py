"""The API server's refusals of requests for running guests, until each may be repeated. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from apiserver.apis.meta.objects import NamespacedName
from controller.reconcilers.applying import REFUSED_SECONDS


class _Refusal(NamedTuple):
    message: str
    until: float


class Refusals:
    """Refused requests, by machine."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._refused: dict[NamespacedName, dict[str, _Refusal]] = {}

    def add(self, machine: NamespacedName, messages: Mapping[str, str]) -> None:
        """Store why requests of the machine were refused, by request, for ``REFUSED_SECONDS``."""
        until = self._elapsed() + REFUSED_SECONDS
        self._refused.setdefault(machine, {}).update({request: _Refusal(message, until) for request, message in messages.items()})

    def messages(self, machine: NamespacedName) -> dict[str, str]:
        """Return why requests of the machine were refused, by request; forget refusals older than ``REFUSED_SECONDS``."""
        now = self._elapsed()
        if lasting := {request: each for request, each in self._refused.pop(machine, {}).items() if each.until > now}:
            self._refused[machine] = lasting
        return {request: each.message for request, each in lasting.items()}

    def left(self, machine: NamespacedName) -> float | None:
        """Return the seconds until a refused request of the machine may be repeated (0 or less: now); None: none was refused."""
        now = self._elapsed()
        return min((each.until - now for each in self._refused.get(machine, {}).values()), default=None)

    def forget(self, machine: NamespacedName) -> None:
        """Forget the refusals of a machine that is gone."""
        self._refused.pop(machine, None)
