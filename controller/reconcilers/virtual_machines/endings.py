"""The time since attempts ended. No I/O.

A node writes ``endTime``, and its clock may differ. So the delay before the next attempt is measured from when this process saw the end. An
end before the process started counts from its ``endTime``, but never as in the future.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import NamespacedName, Object, key_of, uid_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import power
from controller.reconcilers.virtual_machines import attempts


@dataclass(slots=True)
class _Newest:
    vm_uid: str
    number: int
    over_since: float | None


class Endings:
    """The newest attempt of each machine, and when it ended."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._newest: dict[NamespacedName, _Newest] = {}

    def rested(self, vm: Object, now: datetime) -> float:
        """Return the seconds since this process saw the newest attempt end, or since an earlier ``endTime``; 0 while it is in progress."""
        known, number = self._newest.get(key_of(vm)), power.current_attempt(vm)
        is_new = known is None or (known.vm_uid, known.number) != (uid_of(vm), number)
        if known is None or is_new:
            known = self._newest[key_of(vm)] = _Newest(uid_of(vm), number, None)
        if attempts.is_open(vm):
            known.over_since = None
            return 0.0
        if known.over_since is None:
            known.over_since = self._elapsed() - (_age(vm, number, now) if is_new else 0.0)
        return self._elapsed() - known.over_since

    def forget(self, key: NamespacedName) -> None:
        """Forget the ends of a machine that is gone."""
        self._newest.pop(key, None)

    def __len__(self) -> int:
        return len(self._newest)


def _age(vm: Object, number: int, now: datetime) -> float:
    ended = next((each.get("endTime") for each in dig_vm(vm, "status", "attempts") or () if int(each["number"]) == number), None)
    return max((now - times.parse(ended)).total_seconds(), 0.0) if ended else 0.0
