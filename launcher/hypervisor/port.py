"""The hypervisor as virt-launcher needs it: a port.

1. Methods name a domain; there may be others, they are left alone.
2. Every method either has done what it says when it returns, or raises one of the errors below, or is cancelled. After ``Unavailable``,
   ``OperationTimeout`` and cancellation it is unknown whether it was done: observe.
3. ``observe`` returns what is so now, never something older than what it returned before.
4. After anything about any domain changed, every callback given to ``subscribe`` is called, in the event loop, at least once. It carries
   no news: the change is there to be observed. After a reconnection it is called, too, because events may have been lost.
5. ``create`` makes a persistent domain and starts it paused, before its first instruction. When it raises ``HypervisorError`` other
   than those of rule 2, no domain is left. When a domain of that name exists, it raises ``DomainExists`` and leaves that one alone.
6. ``suspend``, ``resume`` and ``destroy`` of a domain that already is so do nothing. ``destroy`` of one that is absent does nothing.
   ``resume`` ends a pause of every kind, also a guest's own suspension to memory; its cause may bring the pause back.
7. ``migrate`` returns when the domain is complete on the target, paused there (also one that ran), and should be gone here. When it
   raises, the target's copy, if there is one, is paused, too; where the domain is then, only ``observe`` tells. Its terms hold for this
   migration alone. Disks that are copied have there what they had when the domain stopped here; one that stays goes on with its own.
8. Methods may be called concurrently. While ``migrate`` runs, ``observe``, ``progress``, ``abort_job`` and ``suspend`` answer at once. A
   domain that is suspended then arrives as any other; one that stays is resumed, or stays paused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from launcher.domain.states import ACTIVE, State, has_arrived

Usage = Literal["iscsi", "ceph"]
"""libvirt's words for what a secret is used for."""
NO_SPACE: Final = "no space left"
"""Our word for the error of a disk whose storage is full."""


class HypervisorError(Exception):
    """The hypervisor could not. Its own words are the message."""


class Unavailable(HypervisorError):
    """There is no connection to the hypervisor right now; it is being restored."""


class OperationTimeout(HypervisorError):
    """The hypervisor has not answered in time."""


class DomainNotFound(HypervisorError):
    """There is no domain of that name."""


class DomainExists(HypervisorError):
    """There is one already."""


class OperationInvalid(HypervisorError):
    """Not in the state that the domain is in."""


class AgentSilent(OperationInvalid):
    """No guest agent is connected, or it does not answer; asking it for something else at once would take as long."""


class AgentRefused(OperationInvalid):
    """The guest agent answered that it cannot, or will not, or nothing that makes sense. The guest chose the words."""


class MigrationFailed(HypervisorError):
    """The domain stayed, as far as libvirt knows."""


class MigrationAborted(MigrationFailed):
    """The domain stayed because ``abort_job`` was called."""


@dataclass(frozen=True, slots=True)
class DiskFault:
    """An error of a disk after which its guest went on."""

    disk: str
    """libvirt's name of it (``vda``)."""
    error: str
    """``NO_SPACE``, or another word for people."""
    ignored: bool
    """The guest was told that all is well; else, that it failed."""
    time: float
    """Of this process' monotonic clock."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A domain as it is now."""

    name: str
    uuid: str
    type: str
    """``qemu``, ``kvm``, or ``test``."""
    state: State
    reason: str
    """libvirt's word; ``panicked`` also of a domain that is off because its guest panicked, which libvirt calls crashed by then, and
    ``watchdog`` of one that its watchdog powered off, which to libvirt crashed, too."""
    agent_connected: bool = False
    reboots: int = 0
    """Number of the guest's reboots since this process watches it."""
    watchdogs: int = 0
    """Number of times that its watchdog fired since then."""
    disk_errors: tuple[tuple[str, str], ...] = ()
    """Of a domain that is paused by an I/O error: libvirt's name of the disk, and its word for the error."""
    disk_faults: tuple[DiskFault, ...] = ()
    """The last error of each disk that did not stop the guest, since this process watches."""
    cid: int = 0
    """Address of the guest's sockets to its node (AF_VSOCK); 0 without any."""

    @property
    def active(self) -> bool:
        """Tell whether a QEMU process is there."""
        return self.state in ACTIVE

    @property
    def arrived(self) -> bool:
        """Tell whether the domain is complete here: false while it is on its way. It arrives paused."""
        return has_arrived(self.state, self.reason)


@dataclass(frozen=True, slots=True)
class Terms:
    """Limits and options of one migration."""

    bandwidth_bytes: int = 0
    """A second, at most; libvirt counts in MiB, of which it is one at least. 0: no limit. Copied disks share it, and memory gets as
    much as one of them."""
    max_downtime_milliseconds: int = 0
    """Time that the domain may stand still at the end, as QEMU estimates it; 0: QEMU's default."""
    parallel_connections: int = 1
    """Connections that carry the memory."""
    auto_converge: bool = False
    """QEMU may slow the processors down until the memory changes more slowly than it is sent."""


NO_TERMS: Final = Terms()


@dataclass(frozen=True, slots=True)
class Disks:
    """The disks of a domain that migrates."""

    copied: tuple[str, ...] = ()
    """libvirt's names (``vda``) of those that are copied; their files are at the target, with the size that they have here."""
    shallow: bool = False
    """Copied is what was written to their files, and nothing of those below; else all that the guest sees."""
    shared: bool = False
    """There are others that the guest writes to and both sides have open, past any page cache: the hypervisor is to believe that."""
    uri: str = ""
    """Path of the unix socket that the copies go to: here, and at the target, where QEMU listens."""


NO_DISKS: Final = Disks()


@dataclass(frozen=True, slots=True)
class Progress:
    """Figures of the migration that runs, or of the last one."""

    elapsed_milliseconds: int = 0
    memory_total_bytes: int = 0
    memory_processed_bytes: int = 0
    memory_remaining_bytes: int = 0
    iteration: int = 0
    downtime_milliseconds: int = 0
    """Of one that runs: how long the guest is expected to stand still."""
    data_total_bytes: int = 0
    """Memory, and disks that are copied along; so the next two."""
    data_processed_bytes: int = 0
    data_remaining_bytes: int = 0
    bytes_per_second: int = 0
    """Of the same."""
    dirty_bytes_per_second: int = 0
    """Bytes that the guest writes to its memory; 0 before the second iteration, when it is measured."""


class Hypervisor(Protocol):
    """The port. The module's docstring has the promises."""

    @property
    def has_pci_panic(self) -> bool:
        """Return whether a domain may have QEMU's PCI panic device."""

    async def ready(self) -> None:
        """Wait until the hypervisor can be used at once, its slow first questions (what can QEMU do?) already answered."""

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called after changes."""

    async def observe(self, name: str) -> Observation | None:
        """Return the domain, or None when there is none."""

    async def create(self, name: str, xml: str, *, validate: bool = False) -> None:
        """Define the domain ``name`` and start it paused; ``validate``: once the XML fits libvirt's schema, where that is installed."""

    async def keep_secret(self, uuid: str, value: bytes, usage: Usage = "iscsi") -> None:
        """Know a secret that the XML of domains names by this UUID, in place of one it knew; in memory alone, and tell it to no client."""

    async def resume(self, name: str) -> None:
        """Let the processors run."""

    async def suspend(self, name: str) -> None:
        """Stop the processors."""

    async def press_power_button(self, name: str, *, agent: bool = False) -> None:
        """Ask the guest to power off, by ACPI or through its agent. The guest decides."""

    async def destroy(self, name: str) -> None:
        """Power off at once."""

    async def migrate(self, name: str, *, libvirt_uri: str, data_uri: str, terms: Terms = NO_TERMS, disks: Disks = NO_DISKS) -> None:
        """Move the domain, live, to the libvirtd at ``libvirt_uri``, the memory through ``data_uri``, and these disks."""

    async def abort_job(self, name: str) -> None:
        """Abort the migration that runs; nothing when none does."""

    async def progress(self, name: str, *, completed: bool = False) -> Progress | None:
        """Return the figures of the running (or completed) migration; None when there are none."""

    async def ask_agent(self, name: str, command: str, arguments: Mapping[str, Any] | None = None) -> object:
        """Return what the guest agent answers to one command of its protocol: any JSON value, of which nothing is to be believed.

        One question is open at a time, and none of a domain's life waits for it.

        Raises:
            AgentSilent: it does not answer, or has not answered an earlier question yet.
            AgentRefused: it answers that it will not.
        """
