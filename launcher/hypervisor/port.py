"""The hypervisor as virt-launcher needs it: a port.

1. Methods affect only the named domain.
2. A method returns when it is done, raises one of the errors below, or is cancelled. After ``Unavailable``, ``OperationTimeout`` and
   cancellation it is unknown whether it was done: observe.
3. ``observe`` returns the current state, never an older one than before.
4. After each change of any domain, and after a reconnection, each callback of ``subscribe`` is called at least once, in the event loop.
5. ``create`` makes a persistent domain, paused before its first instruction.
6. ``suspend``, ``resume``, ``limit_disk``, ``set_link``, ``add_vcpus``, ``request_memory`` and ``destroy`` are idempotent; ``destroy`` of
   an absent domain does nothing. ``resume`` ends any pause, even the guest's own suspension to memory; a pause's cause may recur.
7. ``migrate`` returns when the domain is complete and paused on the target, even if it ran before, and should be gone here. If it raises,
   the target's copy, if any, is paused as well; only ``observe`` tells where the domain is. Its terms apply to this migration only. Copied
   disks have the content of the moment when the domain stopped here. A domain that stays continues with its own disks.
8. ``reset`` returns after the machine's reset, with the processors running or paused as before. Observations do not count it as a reboot.
   It raises ``OperationInvalid`` if the guest suspended itself to memory.
9. ``reboot``, ``inject_nmi`` and ``send_keys`` return when the request was sent; the guest decides. With ``agent``, ``reboot`` may return
   only after the guest's reboot. After a reboot by the power button, the machine is reset when the guest powers off.
10. ``save`` returns when the memory is in the file, with mode 0600, and the domain has ended with reason ``saved``; a failed one leaves the
    domain as it was, or ended. ``restore`` makes a persistent domain from the file, paused. If the XML has other hardware than the file, it
    raises an error; then no domain is left, and the file is unchanged.
11. Methods may be called concurrently. During ``migrate`` and ``save``, ``observe``, ``progress`` and ``abort_job`` answer at once, and so
    does ``suspend`` during ``migrate``. A domain that is then suspended arrives as any other; if it stays, it is resumed or remains paused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from launcher.domain.states import ACTIVE, State, has_arrived

Usage = Literal["iscsi", "ceph"]
DeviceKind = Literal["disk", "interface"]
AGENT_SECONDS: Final = 3
"""A guest agent's time to answer, and before that to get ready."""
NO_SPACE: Final = "no space left"


class HypervisorError(Exception):
    """The hypervisor failed, as its message says; base class of the others."""


class Unavailable(HypervisorError):
    """The hypervisor is not connected; it reconnects. The call may have taken effect."""


class OperationTimeout(HypervisorError):
    """The hypervisor did not answer in time; it may still carry the call out."""


class DomainNotFound(HypervisorError):
    """No domain has this name."""


class DomainExists(HypervisorError):
    """A domain of this name exists."""


class OperationInvalid(HypervisorError):
    """The call is not possible in the domain's current state, or unsupported."""


class AgentUnresponsive(OperationInvalid):
    """No guest agent is connected, or it does not answer."""


class AgentRefused(OperationInvalid):
    """The guest agent refused, failed, or sent an invalid answer. The guest chose the text."""


class MigrationFailed(HypervisorError):
    """A migration failed: as far as libvirt can tell, the domain stays at its source."""


class MigrationAborted(MigrationFailed):
    """``abort_job`` ended a migration; the domain stays at its source."""


@dataclass(frozen=True, slots=True)
class DiskFault:
    """A disk's error that did not pause the guest."""

    disk: str
    """libvirt's target name (``vda``)."""
    error: str
    """``NO_SPACE``, or another text for users."""
    ignored: bool
    """The guest saw a success."""
    time: float


@dataclass(frozen=True, slots=True)
class Device:
    """A current disk or network interface of the domain."""

    kind: DeviceKind
    target: str
    """``vda``, or an interface's tap; empty without one."""
    address: str = ""
    """In the guest: ``pci 0000:01:00.0``, ``drive 0:0:0:1``."""
    mac: str = ""
    limits: tuple[tuple[str, int], ...] = ()
    """By their names in ``ioTune``."""
    is_empty: bool = False
    """A drive without a medium."""
    is_up: bool | None = None
    """Link state of an emulated card; None for others."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a domain that may get more, in bytes. ``plugged`` and ``requested`` do not contain ``at_boot``."""

    at_boot: int
    """What it always has."""
    plugged: int
    """What the guest has now."""
    requested: int
    """What the guest should have; it takes and releases this at its own pace."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The current state of a domain."""

    name: str
    uuid: str
    type: str
    """``qemu``, ``kvm``, or ``test``."""
    state: State
    reason: str
    """libvirt's, but instead of crashed: ``panicked`` if the guest panicked, ``watchdog`` if its watchdog powered it off."""
    agent_connected: bool = False
    reboots: int = 0
    """By the guest, since this process started."""
    watchdogs: int = 0
    disk_errors: tuple[tuple[str, str], ...] = ()
    """For a domain paused by an I/O error: libvirt's target name of each disk, and the error."""
    disk_faults: tuple[DiskFault, ...] = ()
    """The last error of each disk that did not pause the guest."""
    cid: int = 0
    """Its vsock address (AF_VSOCK); 0 without one."""
    devices: tuple[Device, ...] = ()
    """Disks and interfaces, in the order of the XML."""
    vcpus: int = 0
    """Current virtual processors; 0: unknown."""
    memory: Memory | None = None
    """None for a domain that keeps its memory."""

    @property
    def active(self) -> bool:
        """Return whether a QEMU process exists."""
        return self.state in ACTIVE

    @property
    def arrived(self) -> bool:
        """Return whether the domain is complete here, not still migrating. It arrives paused."""
        return has_arrived(self.state, self.reason)


@dataclass(frozen=True, slots=True)
class Terms:
    """Limits and options of one migration."""

    bandwidth_bytes: int = 0
    """Maximum, counted in MiB; 0: unlimited. Copied disks share it, and memory gets as much as one of them."""
    max_downtime_milliseconds: int = 0
    """Longest pause at the end, as QEMU estimates it; 0: QEMU's default."""
    parallel_connections: int = 1
    auto_converge: bool = False
    """QEMU may slow the processors down until memory changes more slowly than it is sent."""


NO_TERMS: Final = Terms()


@dataclass(frozen=True, slots=True)
class Disks:
    """How a migration treats the domain's disks.

    ``copied`` has libvirt's target names (``vda``); ``moved``, pairs of a path that a disk may have here, and its path at the target.
    """

    copied: tuple[str, ...] = ()
    """Their files exist at the target, with the same size."""
    shallow: bool = False
    """Copy only what was written to the overlays, not all that the guest sees."""
    shared: bool = False
    """Both sides have writable disks open, without a page cache. The hypervisor must accept that."""
    uri: str = ""
    """Unix socket for the copies: here, and at the target, where QEMU listens."""
    moved: tuple[tuple[str, str], ...] = ()


NO_DISKS: Final = Disks()


@dataclass(frozen=True, slots=True)
class Progress:
    """Statistics of the current or last migration or save."""

    elapsed_milliseconds: int = 0
    memory_total_bytes: int = 0
    memory_processed_bytes: int = 0
    memory_remaining_bytes: int = 0
    iteration: int = 0
    downtime_milliseconds: int = 0
    """Of a running migration: the guest's expected pause."""
    data_total_bytes: int = 0
    """Memory and copied disks; also the next two."""
    data_processed_bytes: int = 0
    data_remaining_bytes: int = 0
    bytes_per_second: int = 0
    """Memory and copied disks."""
    dirty_bytes_per_second: int = 0
    """By the guest's writes; 0 before the second iteration, which measures it."""


class Hypervisor(Protocol):
    """What virt-launcher needs of a hypervisor. The module's docstring has rules for all methods."""

    @property
    def has_pci_panic(self) -> bool:
        """Return whether a domain may have QEMU's PCI panic device."""

    async def ready(self) -> None:
        """Wait until the hypervisor can be used."""

    async def learn(self, capabilities: str) -> None:
        """Give the hypervisor the node's cache of QEMU's capabilities, before the first domain. If it is outdated, QEMU is probed now."""

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called after each change of any domain or of the connection."""

    async def observe(self, name: str) -> Observation | None:
        """Return the domain's state, active or not; None if there is no such domain."""

    async def describe(self, name: str) -> str:
        """Return the domain's present XML, active or not, without passwords."""

    async def create(self, name: str, xml: str, *, validate: bool = False) -> None:
        """Define the domain and start it paused. Raises DomainExists.

        After Unavailable or OperationTimeout the new domain may exist; after other errors it does not. ``validate``: check the XML
        against libvirt's schema first, if that is installed.
        """

    async def keep_secret(self, uuid: str, value: bytes, usage: Usage = "iscsi") -> None:
        """Store or replace the secret with this UUID, to which domain XML refers. It stays in memory, and no client can read it."""

    async def resume(self, name: str) -> None:
        """Start the guest's processors after any pause."""

    async def suspend(self, name: str) -> None:
        """Stop the guest's processors."""

    async def reset(self, name: str) -> None:
        """Reset the machine at once."""

    async def press_power_button(self, name: str, *, agent: bool = False) -> None:
        """Request that the guest powers off, by ACPI or (``agent``) its guest agent; the guest may ignore it."""

    async def reboot(self, name: str, *, agent: bool = False) -> None:
        """Request that the guest reboots, by ACPI or (``agent``) its guest agent; the guest may ignore it."""

    async def screenshot(self, name: str, limit: int) -> bytes:
        """Return the first screen as PNG. Raises OperationInvalid also if that takes more than ``limit`` bytes."""

    async def inject_nmi(self, name: str) -> None:
        """Send a non-maskable interrupt to the processors."""

    async def send_keys(self, name: str, codes: Sequence[int], hold_milliseconds: int) -> None:
        """Press these keys together, by Linux's codes, for ``hold_milliseconds``; returns when that has begun."""

    async def limit_disk(self, name: str, target: str, limits: Mapping[str, int]) -> None:
        """Replace the I/O limits of a running domain's disk, by target name; missing ones are removed."""

    async def add_vcpus(self, name: str, count: int) -> None:
        """Plug virtual processors into a running domain until it has ``count``. Raises OperationInvalid if it has more."""

    async def request_memory(self, name: str, amount: int) -> None:
        """Request that a running domain's guest has this many bytes of memory in all, and do not wait.

        Raises:
            HypervisorError: the domain keeps its memory, or started with more, or cannot have so much.
        """

    async def resize_disk(self, name: str, target: str, size: int) -> None:
        """Tell a running domain that its disk has grown to this many bytes, unless it knows that, or more."""

    async def set_link(self, name: str, mac: str, *, up: bool) -> None:
        """Set the link state of a running domain's interface. Raises OperationInvalid without that interface."""

    async def attach_disk(self, name: str, target: str, disk: str, controllers: Sequence[str] = ()) -> None:
        """Give the running domain a disk, after those ``controllers`` that it lacks, all as XML, unless it has ``target``."""

    async def detach_disk(self, name: str, target: str) -> bool:
        """Ask the guest to release a disk, and wait for some seconds; return whether the domain lacks it then."""

    async def change_medium(self, name: str, target: str, disk: str) -> bool:
        """Put the medium of ``disk``, the drive's new XML, into drive ``target``; remove the old one if that XML has none.

        Return False, with nothing changed, if the guest locks the tray.

        Raises OperationInvalid without that drive.
        """

    async def attach_interface(self, name: str, mac: str, interface: str) -> None:
        """Give the running domain an interface, by its XML, unless it has one with this MAC address."""

    async def detach_interface(self, name: str, mac: str) -> bool:
        """Ask the guest to release an interface, and wait for some seconds; return whether the domain lacks it then."""

    async def destroy(self, name: str) -> None:
        """Power the domain off at once."""

    async def migrate(self, name: str, *, libvirt_uri: str, data_uri: str, terms: Terms = NO_TERMS, disks: Disks = NO_DISKS) -> None:
        """Migrate the domain live to the libvirtd at ``libvirt_uri``, the memory through ``data_uri``; it is then paused there.

        After an error, :meth:`observe` tells whether it stayed.
        """

    async def save(self, name: str, path: str) -> None:
        """Write the domain's memory and devices to a new file, and end the domain, which a failure may end, too."""

    async def restore(self, name: str, path: str, xml: str) -> None:
        """Start the domain from a file of ``save``, paused, with this XML. Raises DomainExists."""

    async def abort_job(self, name: str) -> None:
        """Abort the running migration or save; does nothing without one, or without the domain."""

    async def progress(self, name: str, *, completed: bool = False) -> Progress | None:
        """Return the running migration's or save's statistics (``completed``: the last one's, which can be read once); None without one."""

    async def statistics(self, name: str) -> Mapping[str, object]:
        """Return libvirt's statistics of an active domain by their names, such as ``cpu.time``, without waiting for its monitor."""

    async def ask_agent(self, name: str, command: str, arguments: Mapping[str, Any] | None = None, seconds: int = AGENT_SECONDS) -> object:
        """Return the guest agent's answer to one command: any JSON value, which is untrusted.

        Only one command is open at a time. The agent has ``seconds`` to answer.

        Raises:
            AgentUnresponsive: it does not answer, or has not answered an earlier command yet.
            AgentRefused: it refuses.
        """
