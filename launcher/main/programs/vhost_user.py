"""Backends of vhost-user devices: child processes that each serve one device of QEMU."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from apiserver.apis.meta import descriptors
from launcher.main.programs.children import Children, terminate
from launcher.main.programs.output_tail import OutputTail

Device = TypeVar("Device")


@dataclass(eq=False, slots=True)
class Backend(Generic[Device]):
    """A process that serves a vhost-user device, and the end of its output."""

    device: Device
    pid: int
    exited: asyncio.Future[int]
    tail: OutputTail
    is_wanted: bool = True
    """False once it was ended deliberately."""

    def end(self) -> None:
        """Kill the backend's process, if it runs."""
        self.is_wanted = False
        if not self.exited.done():
            terminate(self.pid, signal.SIGKILL)


def start(children: Children, device: Device, command: Sequence[str], environment: Mapping[str, str]) -> Backend[Device]:
    """Start the process ``command``, which serves ``device``. Raises OSError."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    with descriptors.on_error(partial(os.close, reader)), descriptors.closing(writer):
        pid, exited = children.start(command, environment, output=writer)
    tail = OutputTail(reader)
    tail.begin()
    return Backend(device, pid, exited, tail)
