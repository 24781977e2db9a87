"""The messages between virt-handler and virt-launcher."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from apiserver.apis.virt.lifecycle.domainstates import DomainState
from apiserver.apis.virt.spec import hot_plug, hot_plug_interfaces, live_changes
from launcher.protocol.leases import Lease, Lease6

PROTOCOL: Final = 1
"""Protocol version, which a running virt-launcher keeps."""
SPOKEN: Final = frozenset({PROTOCOL})
"""Versions that virt-handler supports, because launchers outlive upgrades."""

Accelerator = Literal["qemu", "kvm"]
"""libvirt's domain types: emulated or accelerated."""

EndingKind = Literal["shutdown", "shutdown-requested", "destroyed", "crashed", "migrated", "saved", "start-failed"]
"""How the domain's only run in a pod ended:

* ``shutdown``: the guest powered itself off;
* ``shutdown-requested``: the guest powered off on request (``Shutdown`` or SIGTERM);
* ``destroyed``: we powered it off, on request or after the grace period;
* ``crashed``: QEMU died, or the guest panicked;
* ``migrated``: it runs in another pod (``Ending.migration_uid``);
* ``saved``: its memory is in an image, which the message names (``apis.virt.lifecycle.managed_save``);
* ``start-failed``: it never ran.
"""

OperationAction = Literal["Reset", "Resume", "SoftReboot", "InjectNMI", "SendKey", "Suspend", "SuspendToNodeDisk", "Freeze", "Thaw"]
"""What ``Operate`` does to the guest:

* ``Reset``: like the machine's reset button; the guest loses unwritten data, and a paused one stays paused;
* ``Resume``: like that request;
* ``SoftReboot``: the guest agent, else the power button, requests a reboot;
* ``InjectNMI``: sends a non-maskable interrupt;
* ``SendKey``: presses ``keys`` together;
* ``Suspend``: saves the memory as an image with the operation's id, and ends the run; answered when that has begun;
* ``SuspendToNodeDisk``: the same, in the file system that virt-handler mounted at ``layout.NODE_DISK``;
* ``Freeze``: the guest agent freezes the file systems, for ``thaw_seconds``;
* ``Thaw``: it thaws them.
"""
OPERATIONS: Final[tuple[OperationAction, ...]] = get_args(OperationAction)

OperationState = Literal["running", "succeeded", "failed"]

MAX_OPERATIONS: Final = 16
"""More than a machine lists."""

PropagationMethod = Literal["noCloud", "configDrive", "qemuGuestAgent"]
"""Public keys get into the guest by meta data of a cloud-init disk, or the guest agent."""

LiveChange = live_changes.What
LIVE_CHANGES: Final = (*live_changes.KNOWN, *hot_plug.KINDS, hot_plug_interfaces.INTERFACE)
"""This release's ``DomainStatus.changes``."""

DeviceKind = Literal["disk", "interface"]
MigrationDirection = Literal["outgoing", "incoming"]

MigrationState = Literal["prepared", "running", "arrived", "succeeded", "failed", "cancelled"]
"""A migration's state in its source or target.

Source: ``running``; ``succeeded``: no QEMU of the domain is left in this pod, and the target has all of it; ``failed`` or ``cancelled``:
the domain is still here, or has ended here. Target: ``prepared``: it waits for the domain; ``running``: memory arrives; ``arrived``: the
domain is complete and paused, and belongs to the source until ``ReleaseMigration``; ``succeeded``: it was released; ``failed`` and
``cancelled``: it will not arrive.
"""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface of the guest, set up by virt-handler in the pod's network namespace."""

    name: str
    mac: str
    tap: str
    """Empty for passt."""
    model: str = "virtio"
    lease: Lease | None = None
    """None: behind the pod's address, or on a network without an address for the pod."""
    lease6: Lease6 | None = None
    """None: no IPv6 address from us."""
    ipv4: bool = True
    """The pod, and so the guest, has an IPv4 address."""


@dataclass(frozen=True, slots=True)
class AccessCredential:
    """A Secret with public keys for logins, mounted by its position in the list."""

    method: PropagationMethod
    users: tuple[str, ...] = ()
    """For ``qemuGuestAgent``: users of the guest."""


@dataclass(frozen=True, slots=True)
class Machine:
    """All data that virt-launcher needs to make a libvirt domain."""

    namespace: str
    name: str
    uid: str
    domain: dict[str, Any]
    """The stored ``spec.domain``: defaulted and valid; for XML, the corresponding typed fields."""
    accelerator: Accelerator
    interfaces: tuple[Interface, ...] = ()
    grace_seconds: float = 30.0
    """``terminationGracePeriodSeconds``: the guest's time to shut down, also after SIGTERM."""
    access_credentials: tuple[AccessCredential, ...] = ()
    pre_stop: tuple[str, ...] = ()
    """The guest agent runs it before a shutdown."""
    domain_xml: str = ""
    """``spec.domainXML``; empty: the XML is made from ``domain``."""
    targets: dict[str, str] = field(default_factory=dict)
    """libvirt's names of existing disks (``vda``), which a migration keeps, by the disks' names."""


@dataclass(frozen=True, slots=True)
class Import:
    """Imports images into claims that have none (``source.import``). It precedes all other requests.

    Refused with ``NotReady`` until all images exist: repeat it. The import continues meanwhile; ``Status.imports`` has the progress.
    """

    machine: Machine
    """Without interfaces, which are made later."""


@dataclass(frozen=True, slots=True)
class Image:
    """A file with a suspended guest's memory; ``digest``: SHA-256 of its header, in hexadecimal."""

    id: str
    """The saving operation's id; also its file's name."""
    digest: str
    on_node_disk: bool = False
    """At ``layout.NODE_DISK``, else in the machine's claim."""


@dataclass(frozen=True, slots=True)
class Sync:
    """Makes the domain and starts it, once in a pod's life.

    Refused with ``Failed`` if the domain cannot be started; ``Status.ending`` is then ``start-failed``, and the pod ends. Refused with
    ``NotReady`` while a claim has no image and none can be created in it.
    """

    machine: Machine
    paused: bool = False
    """Leave it paused, before its first instruction."""
    image: Image | None = None
    """Resume the guest from this image; only for launchers with ``Suspend``."""
    capabilities: str = ""
    """libvirt's cache of QEMU's on this node for this accelerator; empty: libvirt probes QEMU."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Requests the guest to power off, and destroys it after ``grace_seconds``. Answered at once.

    Of several requests, the grace period that ends first applies.
    """

    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Suspend:
    """Pauses the guest's processors."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Resumes the guest's processors after any pause. Refused with ``Failed`` if they stop again at once."""


@dataclass(frozen=True, slots=True)
class Operate:
    """Carries an operation out, once in a pod's life.

    Answered when it is over, even if it failed, or a save has begun; ``Status.operation_of(id)`` has its result. Refused with ``Conflict``:
    nothing was done. Refused with ``Invalid`` when a later number was carried out, and this id is forgotten: it may have been carried out.
    """

    id: str
    number: int
    """Increases with each operation of a machine."""
    action: OperationAction
    keys: tuple[int, ...] = ()
    """Linux's codes of the keys to press."""
    hold_milliseconds: int = 0
    thaw_seconds: int = 0
    """Of ``Freeze``: after how many seconds the file systems thaw."""


@dataclass(frozen=True, slots=True)
class SetPassword:
    """Has the guest agent set a user's password. A repeated request sets it again."""

    user: str
    password: str = field(repr=False)
    encrypted: bool = False
    """It is a hash, as in ``/etc/shadow``."""


@dataclass(frozen=True, slots=True)
class Execute:
    """Has the guest agent run a command in the guest, one at a time; answered when it ended with exit code 0.

    Refused with ``Failed`` if it failed or did not end in time, with ``Conflict`` or ``Timeout`` if it could not be run.
    """

    command: tuple[str, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class AttachDisk:
    """Gives the running guest a disk, or a drive its medium; refused with ``NotReady`` while the guest locks the tray.

    The claim is mounted where ``places.layout`` says.
    """

    disk: dict[str, Any]
    """As ``hardware.disks.defaulted`` returns it."""


@dataclass(frozen=True, slots=True)
class DetachDisk:
    """Asks the running guest to release a disk, or the medium of a drive, which stays.

    Refused with ``NotReady`` while the guest has not given it back.
    """

    name: str


@dataclass(frozen=True, slots=True)
class AttachInterface:
    """Gives the running guest a network card; virt-handler has set its tap up."""

    card: dict[str, Any]
    """As ``hardware.interfaces.defaulted`` returns it."""
    interface: Interface


@dataclass(frozen=True, slots=True)
class DetachInterface:
    """Asks the running guest to release a network card.

    Refused with ``NotReady`` while the guest has not given it back.
    """

    name: str


@dataclass(frozen=True, slots=True)
class PrepareMigrationTarget:
    """Prepares an empty pod for the domain: libvirtd runs, directories and overlays exist.

    ``Status.migration_of(uid)`` is then ``prepared``. ``machine`` must equal the source's, except for the tap devices.
    """

    migration_uid: str
    machine: Machine
    relays_disks: bool = False
    """virt-handler also relays ``layout.MIGRATION_DISKS_SOCKET``; older ones do not, and disks in the pod cannot migrate."""
    relays_made_disks: bool = False
    """virt-handler also relays ``layout.MIGRATION_MADE_DISKS_SOCKET``, and the source's launcher may send the disks that it made.

    An older source sends none; then the guest gets those that are made here.
    """
    capabilities: str = ""
    """As in ``Sync``."""


@dataclass(frozen=True, slots=True)
class Migrate:
    """Starts to migrate the domain through this pod's ``layout.MIGRATION_LIBVIRT_SOCKET`` and ``layout.MIGRATION_DATA_SOCKET``.

    Disks that exist only in this pod are copied first, through ``layout.MIGRATION_DISKS_SOCKET``. Answered when the migration has started;
    ``Status.migration_of(uid)`` has its progress. Each uid is tried only once. Older launchers support only the uid.
    """

    migration_uid: str
    bandwidth_bytes: int = 0
    """Maximum, rounded down to MiB, at least 1 MiB; 0: unlimited."""
    max_downtime_milliseconds: int = 0
    """Longest pause of the guest at the end; 0: QEMU's default."""
    parallel_connections: int = 1
    auto_converge: bool = False
    """QEMU may slow down the guest's processors."""
    relays_disks: bool = False
    """As in ``PrepareMigrationTarget``."""
    relays_made_disks: bool = False
    """Send the disks made in the pod first; if the target does not take them, the migration fails."""


@dataclass(frozen=True, slots=True)
class PauseForMigration:
    """Pauses the guest of an outgoing migration, so its memory stops changing and all of it can arrive.

    The guest resumes where it is released, or here if it stays. No effect on a paused guest or after the migration.
    """

    migration_uid: str


@dataclass(frozen=True, slots=True)
class AbortMigration:
    """Ends a migration. In the source, the domain stays and the state becomes ``cancelled``. A target stops waiting.

    A migration that has just succeeded stays ``succeeded``.
    """

    migration_uid: str


@dataclass(frozen=True, slots=True)
class ReleaseMigration:
    """Makes the arrived domain the target pod's own, and resumes it unless ``paused``.

    Send it only after the source's launcher reported ``succeeded``. Refused with ``Conflict`` if no domain arrived.
    """

    migration_uid: str
    paused: bool = False
    """A user paused the guest."""


@dataclass(frozen=True, slots=True)
class Read:
    """Requests a text about the domain, one of ``Hello.reads``; answered by ``Content``.

    Refused with ``Invalid`` if the text is never available, with ``Conflict`` if not in the present state, with ``Timeout`` if its source
    does not answer.
    """

    what: str


@dataclass(frozen=True, slots=True)
class Change:
    """Gives the running guest one setting of a device, unless libvirt has it."""

    what: LiveChange
    name: str
    """Its name in the machine."""
    device: dict[str, Any]
    """The desired device. Only the setting counts."""


Action = (
    Import
    | Sync
    | Shutdown
    | Suspend
    | Resume
    | Operate
    | Change
    | SetPassword
    | Execute
    | AttachDisk
    | DetachDisk
    | AttachInterface
    | DetachInterface
    | PrepareMigrationTarget
    | Migrate
    | PauseForMigration
    | AbortMigration
    | ReleaseMigration
)
Request = Action | Read


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """A current disk or network interface of the domain."""

    kind: DeviceKind
    name: str
    """In the machine's spec."""
    target: str = ""
    """libvirt's: ``vda``, or an interface's tap."""
    address: str = ""
    """In the guest, such as ``pci 0000:01:00.0``."""
    empty: bool = False
    """A drive without a medium."""


@dataclass(frozen=True, slots=True)
class SettingStatus:
    """A setting that ``Change`` may change."""

    what: str
    name: str
    """The device's name in the spec."""
    value: str
    """As ``live_changes.values`` writes it."""
    requested: str = ""
    """The value that the guest has not reached yet; empty if it has it."""


@dataclass(frozen=True, slots=True)
class DomainStatus:
    """The domain's current state in libvirt."""

    name: str
    uuid: str
    type: Accelerator
    state: DomainState
    reason: str
    """libvirt's, e.g. ``booted``, ``user``, ``migrated``."""
    detail: str = ""
    """For a pause after an error: the disks that failed."""
    full: bool = False
    """The failed disk's storage is full."""
    cpu_model: str = ""
    """Empty: none, or an older launcher."""
    cid: int = 0
    """The guest's vsock address (AF_VSOCK); 0 without one."""
    devices: tuple[DeviceStatus, ...] = ()
    """Disks and interfaces; none from older launchers."""
    settings: tuple[SettingStatus, ...] = ()
    """None of a machine with XML."""
    changes: tuple[str, ...] = ()
    """What this launcher can change; nothing from older ones."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of the domain's run in this pod."""

    kind: EndingKind
    message: str = ""
    """For users: libvirt's error, or our action."""
    migration_uid: str = ""
    log: tuple[str, ...] = ()
    """The last lines of QEMU's log, if it failed or crashed. Untrusted."""
    time: float = 0.0
    """Unix time."""
    panicked: bool = False
    """For ``crashed``: the guest's kernel reported a panic."""
    watchdog: bool = False
    """For ``crashed``: the guest's watchdog powered it off."""
    image_used: bool = False
    """For ``start-failed``: the image was used before, and its guest may have run since. The memory is lost."""


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """A live migration with this pod as source or target."""

    uid: str
    direction: MigrationDirection
    state: MigrationState
    message: str = ""
    elapsed_milliseconds: int = 0
    memory_total_bytes: int = 0
    memory_processed_bytes: int = 0
    memory_remaining_bytes: int = 0
    iteration: int = 0
    downtime_milliseconds: int = 0
    """In the source the guest's expected pause; in the target, after the arrival, its actual one."""
    start_time: float = 0.0
    end_time: float = 0.0
    data_total_bytes: int = 0
    """Memory and copied disks; also the next two. 0: an older launcher."""
    data_processed_bytes: int = 0
    data_remaining_bytes: int = 0
    bytes_per_second: int = 0
    dirty_bytes_per_second: int = 0
    """Rate at which the guest writes to its memory; 0 before the second iteration."""


@dataclass(frozen=True, slots=True)
class OperationStatus:
    """An operation that was requested from this pod."""

    id: str
    number: int
    state: OperationState = "running"
    message: str = ""
    """Why it failed, for users."""
    percent: int = 0
    """Progress of ``Suspend``."""


@dataclass(frozen=True, slots=True)
class InterfaceStatus:
    """An interface as the guest agent reports it; interfaces that exist only in the guest have an empty ``name``."""

    name: str
    mac: str
    guest_device: str = ""
    """The guest's name for it, such as ``eth0``."""
    ip_addresses: tuple[str, ...] = ()
    """Without loopback and link-local addresses; IPv4 first."""


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """Answers of the guest agent, which are untrusted."""

    connected: bool = False
    hostname: str = ""
    os_id: str = ""
    os_name: str = ""
    os_version: str = ""
    kernel_release: str = ""
    timezone: str = ""
    version: str = ""
    problem: str = ""
    """Why a connected agent does not answer; its last answers remain."""


@dataclass(frozen=True, slots=True)
class AuthorizedKeysStatus:
    """State of the public keys that the guest agent sets."""

    state: Literal["waiting", "synchronized", "failed"] = "waiting"
    message: str = ""
    """The cause of ``failed``; the guest may choose part of the text."""


ImportPhase = Literal["Pending", "Downloading", "Converting", "Retrying", "Succeeded"]
"""``Pending``: another import comes first."""


@dataclass(frozen=True, slots=True)
class ImportStatus:
    """The import of a disk's image."""

    disk: str
    phase: ImportPhase = "Pending"
    transferred_bytes: int = 0
    """Of the file at its source."""
    total_bytes: int = 0
    """0: unknown."""
    failures: int = 0
    message: str = ""
    """Why the last attempt failed."""


@dataclass(frozen=True, slots=True)
class DiskFault:
    """An error of a disk that did not pause the guest."""

    disk: str
    """The disk's name in the machine."""
    full: bool = False
    """Its storage is full; else another reason."""
    ignored: bool = False
    """The guest does not see the error."""


@dataclass(frozen=True, slots=True)
class Status:
    """The complete state of a pod's guest, as virt-launcher reports it."""

    revision: int
    """Increases with each change in a pod's life."""
    domain: DomainStatus | None = None
    """None before and after the domain exists."""
    started: bool = False
    """The domain has run in this pod, booted or migrated and released here."""
    ending: Ending | None = None
    """The run is over. Nothing will run in this pod again, and virt-launcher is about to exit."""
    stopping: bool = False
    """By ``Shutdown`` or SIGTERM."""
    grace_seconds: float | None = None
    """The shortest grace period requested; None before a request, or for older launchers."""
    consoles: int = 0
    """Connections to the console socket."""
    reboots: int = 0
    """By the guest, in this pod."""
    watchdogs: int = 0
    """How often it fired in this pod."""
    interfaces: tuple[InterfaceStatus, ...] = ()
    agent: AgentStatus = field(default_factory=AgentStatus)
    authorized_keys: AuthorizedKeysStatus = field(default_factory=AuthorizedKeysStatus)
    lost_filesystems: tuple[str, ...] = ()
    """Their files are unusable until the machine is restarted."""
    passt_ends: int = 0
    """How often passt, which relays the guest's connections, ended in this pod. A new process replaces it."""
    passt_problem: str = ""
    """Why passt does not run, partly its own text; empty while it runs, and without such an interface."""
    migrations: tuple[MigrationStatus, ...] = ()
    """Newest last, at most four."""
    operations: tuple[OperationStatus, ...] = ()
    """Newest last; the newest :data:`MAX_OPERATIONS`."""
    imports: tuple[ImportStatus, ...] = ()
    """In the machine's order, without images that existed."""
    servers_silent: tuple[str, ...] = ()
    """Disks with an unreachable server and no connection to it."""
    disk_faults: tuple[DiskFault, ...] = ()
    """Disks that failed, or are full, while the guest continues."""
    has_room: bool = False
    """A full disk paused the guest, and a ``Resume`` may succeed."""
    frozen: bool = False
    pre_stop_problem: str = ""
    """Why the command before the shutdown failed; the guest may choose part of the text."""
    not_migratable: str = ""
    """Why a migration would be refused; empty if no reason is known."""

    def migration_of(self, uid: str) -> MigrationStatus | None:
        """Return this pod's migration with this uid, or None."""
        return next((migration for migration in self.migrations if migration.uid == uid), None)

    def operation_of(self, operation_id: str) -> OperationStatus | None:
        """Return the operation with this id, else None."""
        return next((each for each in self.operations if each.id == operation_id), None)


@dataclass(frozen=True, slots=True)
class Hello:
    """virt-launcher's first message on a connection."""

    protocol: int
    launcher_version: str
    status: Status
    reads: tuple[str, ...] = ()
    """Texts that ``Read`` may request."""
    actions: tuple[str, ...] = ()
    """Supported requests of :data:`LATER_ACTIONS`."""
    operations: tuple[str, ...] = ()
    """Supported actions of ``Operate``."""


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The complete status after a change, which virt-launcher sends unasked."""

    status: Status


RefusalReason = Literal["Conflict", "Invalid", "Failed", "Timeout", "NotReady"]
"""Why a request was refused.

``Conflict``: not in this state, e.g. no guest stays in this pod. ``Invalid``: wrong in any state. ``Failed``: libvirt or QEMU failed.
``Timeout``: libvirt did not answer; request the status later. ``NotReady``: disks are missing (``Refusal.disks``), or there is too little
room; repeat the request.
"""


@dataclass(frozen=True, slots=True)
class Call:
    """A request and the id for its answer."""

    id: int
    request: Request


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer to a request that was carried out, or has begun (see its type), with the status afterwards."""

    id: int
    status: Status


@dataclass(frozen=True, slots=True)
class Refusal:
    """The request was refused, or failed."""

    id: int
    reason: RefusalReason
    message: str
    status: Status
    disks: tuple[str, ...] = ()
    """For ``NotReady``: the disks with missing images."""
    full: bool = False
    """Their claims have too little room for these disks; the message says how much."""
    unresolved: tuple[str, ...] = ()
    """Those of ``disks`` with servers that have no address."""


@dataclass(frozen=True, slots=True)
class Content:
    """The text for a ``Read``. It may contain text of the guest: untrusted."""

    id: int
    text: str
    """JSON or XML, depending on ``Read.what``; at most ``codec.MAX_CONTENT_BYTES`` when encoded."""


LATER_ACTIONS: Final = (
    Import.__name__,
    PauseForMigration.__name__,
    SetPassword.__name__,
    Execute.__name__,
    AttachDisk.__name__,
    DetachDisk.__name__,
    AttachInterface.__name__,
    DetachInterface.__name__,
)
"""Requests beyond those of the first version, and ``Hello.actions`` of this one."""

FromLauncher = Hello | StatusChanged | Reply | Refusal | Content
FromHandler = Call
