"""Operations on the guest, each of which is carried out once."""

from __future__ import annotations

import asyncio
from typing import Final, assert_never

from launcher.hypervisor.port import Hypervisor
from launcher.main.decisions import known, requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.lifecycle.freezing import Freezing
from launcher.main.lifecycle.record import Record
from launcher.main.lifecycle.saving import Saving
from launcher.main.lifecycle.signals import Signals
from launcher.main.lifecycle.suspension import Suspension
from launcher.protocol import messages

UNEXPECTED: Final = "virt-launcher failed; its log has the error"
_SAVES: Final = ("Suspend", "SuspendToNodeDisk")
UNKNOWN: Final = "the operation may have been carried out"


class Operations:
    """Carries operations out, one at a time, and records the result of each.

    It records that an operation has begun before it asks libvirt, so it never begins it again.
    """

    def __init__(
        self, hypervisor: Hypervisor, record: Record, suspension: Suspension, signals: Signals, saving: Saving, freezing: Freezing
    ) -> None:
        self._hypervisor = hypervisor
        self._freezing = freezing
        self._record = record
        self._suspension = suspension
        self._signals = signals
        self._saving = saving
        self._one = asyncio.Lock()

    async def operate(self, request: messages.Operate) -> None:
        """Carry out an operation, unless it began before; a save only begins. Waits while libvirtd is away.

        The status gets the result, also a failure. Raises RequestRefused if the operation must not begin.
        """
        async with self._one:
            if not requests.is_to_operate(self._record.known, request):
                return
            await self._hypervisor.ready()
            if not requests.is_to_operate(self._record.known, request):
                return
            self._record.take(known.operating, request.id, request.number)
            problem = UNEXPECTED
            try:
                problem = await self._carry_out(request)
            finally:
                if problem or request.action not in _SAVES:  # a save that has begun reports its own end
                    self._record.take(known.operated, request.id, problem)

    async def _carry_out(self, request: messages.Operate) -> str:
        if why := requests.why_not_while_frozen(self._record.known, request.action):
            return why
        try:
            match request.action:
                case "Reset":
                    await self._suspension.reset()
                case "Resume":
                    await self._suspension.resume()
                case "SoftReboot":
                    await self._signals.reboot()
                case "InjectNMI":
                    await self._signals.interrupt()
                case "SendKey":
                    await self._signals.press(request.keys, request.hold_milliseconds)
                case "Suspend":
                    await self._saving.begin(request.id)
                case "SuspendToNodeDisk":
                    await self._saving.begin(request.id, on_node_disk=True)
                case "Freeze":
                    await self._freezing.freeze(request.thaw_seconds)
                case "Thaw":
                    await self._freezing.thaw()
                case _:
                    assert_never(request.action)
        except RequestRefused as refused:
            return f"{refused}; {UNKNOWN}" if refused.reason == "Timeout" else str(refused)
        return ""
