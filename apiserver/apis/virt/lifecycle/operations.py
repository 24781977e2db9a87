"""Operations on a running guest: reading and changing ``status.operations``.

Unlike a level (power, pause), an operation is carried out at most once. virt-handler sends it to virt-launcher with its id and number, and
writes its result. An attempt's end ends its operations in the same write. virt-launcher refuses a lower ``number`` than the newest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from apiserver.apis.meta import times
from apiserver.apis.virt.lifecycle import power

Action = Literal["Reset", "Resume", "SoftReboot", "InjectNMI", "SendKey", "Suspend", "Freeze", "Thaw"]
"""``Resume`` after a fault; ``SoftReboot`` by the guest itself; ``Suspend`` saves the guest's memory and ends the attempt; ``Freeze`` and
``Thaw``: file systems."""
RESET: Final[Action] = "Reset"
RESUME: Final[Action] = "Resume"
SOFT_REBOOT: Final[Action] = "SoftReboot"
INJECT_NMI: Final[Action] = "InjectNMI"
SEND_KEY: Final[Action] = "SendKey"
SUSPEND: Final[Action] = "Suspend"
FREEZE: Final[Action] = "Freeze"
THAW: Final[Action] = "Thaw"
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)

Result = Literal["Succeeded", "Failed"]
SUCCEEDED: Final[Result] = "Succeeded"
FAILED: Final[Result] = "Failed"

MAX_KEPT: Final = 10
"""The oldest finished ones are dropped."""
MAX_NUMBER: Final = 2**30
"""Well below an int32's maximum."""
ATTEMPT_ENDED: Final = "the attempt ended before the result was known"

Operation = Mapping[str, Any]
NO_PARAMETERS: Final[Mapping[str, Any]] = MappingProxyType({})


def of(vm: Mapping[str, Any]) -> Sequence[Operation]:
    """Return ``status.operations`` of a machine, the oldest first."""
    found: Sequence[Operation] = (vm.get("status") or {}).get("operations") or ()
    return found


def find(vm: Mapping[str, Any], operation_id: str) -> Operation | None:
    """Return the operation with this id, or None."""
    return next((each for each in of(vm) if each.get("id") == operation_id), None)


def is_finished(operation: Operation) -> bool:
    """Return whether an operation has a result."""
    return bool(operation.get("result"))


def unfinished(vm: Mapping[str, Any]) -> tuple[Operation, ...]:
    """Return the current attempt's operations without a result, the oldest first."""
    current = power.current_attempt(vm)
    return tuple(each for each in of(vm) if not is_finished(each) and int(each.get("attempt") or 0) == current)


def appended(
    vm: Mapping[str, Any], action: Action, operation_id: str, now: datetime, parameters: Mapping[str, Any] = NO_PARAMETERS
) -> list[dict[str, Any]] | None:
    """Return ``status.operations`` with a new one; if full, without the oldest finished; None if full of unfinished ones."""
    kept = [dict(each) for each in of(vm)]
    number = max((int(each.get("number") or 0) for each in kept), default=0) + 1
    while len(kept) >= MAX_KEPT:
        oldest = next((each for each in kept if is_finished(each)), None)
        if oldest is None:
            return None
        kept.remove(oldest)
    added = {
        "id": operation_id,
        "number": number,
        "action": action,
        **({"parameters": dict(parameters)} if parameters else {}),
        "attempt": power.current_attempt(vm),
        "time": times.to_rfc3339_micro(now),
    }
    return [*kept, added]


def with_result(vm: Mapping[str, Any], operation_id: str, result: Result, message: str, now: datetime) -> list[dict[str, Any]]:
    """Return ``status.operations`` with this operation's result, unless it already has one."""
    return [
        finished(each, result, message, times.to_rfc3339(now)) if each.get("id") == operation_id and not is_finished(each) else dict(each)
        for each in of(vm)
    ]


def finished(operation: Operation, result: Result, message: str, moment: str) -> dict[str, Any]:
    """Return a copy of an operation with its result."""
    return {**operation, "result": result, **({"message": message} if message else {}), "completionTime": moment}


def end_with_attempts(status: dict[str, Any]) -> None:
    """Give unfinished operations of all but an open current attempt the result ``Failed``, in ``status``."""
    if not status.get("operations"):
        return
    current = power.current_attempt({"status": status})
    ends = {int(each["number"]): each for each in status.get("attempts") or () if power.has_ended(each)}
    status["operations"] = [_ended(each, ends, current) for each in status["operations"]]


def _ended(operation: Operation, ends: Mapping[int, Mapping[str, Any]], current: int) -> dict[str, Any]:
    attempt = int(operation.get("attempt") or 0)
    if is_finished(operation) or (attempt not in ends and attempt == current):
        return dict(operation)
    moment = ends.get(attempt, {}).get("endTime") or operation.get("time")
    failed = {**operation, "result": FAILED, "message": ATTEMPT_ENDED}
    return {**failed, "completionTime": moment} if moment else failed
