"""Pauses and limits, in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Times:
    """Pauses and limits of a managed domain's parts, in seconds."""

    look: float = 10.0
    """Between two looks at the domain, in case an event is lost."""
    console: float = 5.0
    """For QEMU's serial ports to exist; after it, the guest starts without its console."""
    undo_retry: float = 0.5
    """Between attempts to destroy a domain after a failed start, while libvirtd is down."""
    relapse: float = 0.5
    """After a resume: a guest with a failing disk repeats the failed request at once."""

    stop: float = 0.5
    """Between two steps of powering off."""
    press: float = 3.0
    """Between two presses of the power button, which a booting guest ignores."""
    give_up: float = 8.0
    """After the deadline. If libvirtd cannot destroy the domain, our exit then ends QEMU."""
    release: float = 5.0
    """For the release of a complete domain in a target that ends; the source may be gone already."""

    send: float = 60.0
    """For the disks that were made in the pod, before libvirt migrates: a few MiB."""
    clock_pause: float = 5.0
    """The shortest pause after which the guest's clock is set."""
    clock_retry: float = 1.0
    clock_limit: float = 300.0
    """For an agent to set the clock."""
    save_look: float = 0.5
    progress: float = 0.5
    memory_look: float = 0.25
    """Between two checks of the pod's memory during a migration: QEMU may allocate a hundred MiB in a second."""
    settle: float = 0.1
    """Between two looks at a domain whose location libvirt has not decided yet."""

    agent_round: float = 30.0
    """Between two rounds of questions for the status, unless an agent connects or disconnects."""
    agent_pause: float = 1.0
    """Minimum between two rounds: a guest may reopen its channel at any rate."""
    agent_limit: float = 12.0
    """For all questions of one read; the last may take longer. virt-handler waits for twice as long."""
    agent_turn: float = 10.0
    """Longest wait of a read for the questions of another."""
    packages: float = 600.0
    packages_limit: float = 5.0
    """For the package manager to end. The agent cannot kill it."""
    exec_look: float = 0.1
    """Between two checks whether a command in the guest has ended."""
    packages_look: float = 0.25
    """The same for the package manager."""
    freeze: int = 30
    """For the agent to write the guest's data and freeze its file systems; less than virt-handler waits."""
    thaw_retry: float = 1.0
    keys_look: float = 5.0
    """Between two checks of mounted public keys; the kubelet takes up to two minutes to update them."""
    keys_retry: float = 30.0

    servers_look: float = 5.0
    devices_look: float = 10.0
    space_look: float = 5.0
    space_try: tuple[float, float] = (10.0, 300.0)
    """Between two tries to resume a guest with full disks: after the first failure, and the maximum."""
    import_retry: tuple[float, float] = (5.0, 300.0)
    """Before an import's next attempt: after the first failure, doubled after each further one, and the maximum."""


TIMES: Final = Times()
