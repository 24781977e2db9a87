"""The messages between virt-handler and virt-launcher."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from apiserver.apis.virt.lifecycle.domainstates import DomainState

PROTOCOL: Final = 1
"""Version of the wire. virt-launcher keeps the one it was born with, so virt-handler has to speak every version still running."""
SPOKEN: Final = frozenset({PROTOCOL})
"""Versions of the wire that virt-handler of this release can speak: launchers outlive releases."""

Accelerator = Literal["qemu", "kvm"]
"""libvirt's domain types: emulated or accelerated."""

EndingKind = Literal["shutdown", "shutdown-requested", "destroyed", "crashed", "migrated", "start-failed"]
"""End of the one run of a domain in a pod:

* ``shutdown``: the guest powered itself off;
* ``shutdown-requested``: the guest powered off after it was asked to (``Shutdown`` or SIGTERM);
* ``destroyed``: powered off by us, on request or because the guest did not heed in time;
* ``crashed``: QEMU died, or the guest panicked;
* ``migrated``: it runs on in another pod (``Ending.migration_uid``);
* ``start-failed``: it never ran.
"""

PropagationMethod = Literal["noCloud", "configDrive", "qemuGuestAgent"]
"""Ways in which public keys come to the guest: in the meta data of a disk for cloud-init, or by the guest agent."""

MigrationDirection = Literal["outgoing", "incoming"]

MigrationState = Literal["prepared", "running", "arrived", "succeeded", "failed", "cancelled"]
"""In the source: ``running``; then ``succeeded``: no QEMU of the domain is left in this pod, and the target has all of it; or ``failed`` or
``cancelled``: the domain is still here, or has ended here. In the target: ``prepared``: it waits for the domain; ``running``: memory comes
in; ``arrived``: the domain is complete, paused, and the source's until ``ReleaseMigration``; ``succeeded``: it was released; ``failed``
and ``cancelled``: it will not come any more."""


@dataclass(frozen=True, slots=True)
class Route:
    """An IPv4 route."""

    destination: str
    """10.96.0.0/12"""
    gateway: str = ""
    """Empty: on the link itself."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Settings that the guest is told by DHCP where it has an address that the pod was given."""

    address: str
    """With the length of the prefix: 10.244.1.7/24."""
    server: str
    """The address of the DHCP server."""
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True)
class Lease6:
    """Settings that the guest is told by router advertisements and DHCPv6."""

    address: str
    """With the length of the prefix of what is on the link itself: fd00:10:244::7/64."""
    router: str
    """Link-local address from which the router is advertised."""
    router_mac: str = ""
    """Of that router; empty: it says so itself."""
    answers: tuple[str, ...] = ()
    """Addresses of the router for which virt-launcher answers neighbour solicitations."""
    is_default: bool = True
    """True if the router leads everywhere."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface of the guest for which virt-handler has set up the pod's network namespace."""

    name: str
    mac: str
    tap: str
    """The tap device that was made for it; empty: it needs none, since passt carries it."""
    model: str = "virtio"
    lease: Lease | None = None
    """None: it is behind the pod's address, or on a further network that gives the pod no address."""
    lease6: Lease6 | None = None
    """None: it has no IPv6 address of ours."""
    ipv4: bool = True
    """True if the pod has an IPv4 address, so that the guest is given one."""


@dataclass(frozen=True, slots=True)
class AccessCredential:
    """A Secret with public keys of those who may log in; it is mounted by its position in the list."""

    method: PropagationMethod
    users: tuple[str, ...] = ()
    """Of ``qemuGuestAgent``: the guest's users who get the keys."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything virt-launcher needs to know of a VirtualMachine to make a libvirt domain."""

    namespace: str
    name: str
    uid: str
    domain: dict[str, Any]
    """``spec.domain`` as virt-api stores it: defaulted and valid.

    Of a machine with XML, what that means, as far as typed fields can say it.
    """
    accelerator: Accelerator
    interfaces: tuple[Interface, ...] = ()
    grace_seconds: float = 30.0
    """``terminationGracePeriodSeconds``: how long a guest that is asked to shut down may take, SIGTERM included."""
    access_credentials: tuple[AccessCredential, ...] = ()
    """``spec.accessCredentials``, in order."""
    domain_xml: str = ""
    """``spec.domainXML``; empty: libvirt is given what follows from ``domain``."""


@dataclass(frozen=True, slots=True)
class GetStatus:
    """Asks for the status alone."""


@dataclass(frozen=True, slots=True)
class Import:
    """Brings the images of disks into claims that have none (``source.import``), before anything else is done in the pod.

    Answered when all are there. Refused with ``NotReady`` until then: it goes on by itself, ``Status.imports`` has how far it is, and the
    request can be sent again. A launcher whose ``Hello.actions`` does not name it was born before it, and may not be asked.
    """

    machine: Machine
    """Without interfaces: they are made later."""


@dataclass(frozen=True, slots=True)
class Sync:
    """Makes the domain and starts it, once in the life of a pod: a second one changes nothing, whatever it holds.

    Refused with ``Failed`` when the domain cannot be started; ``Status.ending`` then says ``start-failed``, and the pod ends. Refused with
    ``NotReady`` while a claim holds no image and none can be created in it: no guest was made, and it can be sent again.
    """

    machine: Machine
    paused: bool = False
    """Leave the guest paused, before its first instruction."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Asks the guest to power off and destroys it when ``grace_seconds`` are over. Answered when the guest has been asked.

    Asked again, the period that ends first counts.
    """

    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Destroy:
    """Powers the domain off at once."""


@dataclass(frozen=True, slots=True)
class Suspend:
    """Pauses the guest's processors."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Lets the guest's processors run again, whatever stopped them. Refused with ``Failed`` when they stopped again at once."""


@dataclass(frozen=True, slots=True)
class PrepareMigrationTarget:
    """Makes an empty pod ready to receive the domain: libvirtd answers, directories and overlays exist.

    Answered when that is so; ``Status.migration_of(uid)`` is then ``prepared``. ``machine`` must be what the source was given, but for
    the tap devices.
    """

    migration_uid: str
    machine: Machine
    relays_disks: bool = False
    """virt-handler relays ``layout.MIGRATION_DISKS_SOCKET``, too; one of an older release does not, and disks of the pod cannot come."""


@dataclass(frozen=True, slots=True)
class Migrate:
    """Begins to move the running domain through ``layout.MIGRATION_LIBVIRT_SOCKET`` and ``layout.MIGRATION_DATA_SOCKET`` of this pod.

    Disks that this pod alone has are copied first, through ``layout.MIGRATION_DISKS_SOCKET``.

    Answered when the migration is on its way; how it goes is in ``Status.migration_of(uid)``. A uid that was already migrated,
    successfully or not, is not tried again. Launchers of older releases know the uid alone.
    """

    migration_uid: str
    bandwidth_bytes: int = 0
    """A second, at most; rounded down to whole MiB, of which it is one at least. 0: no limit."""
    max_downtime_milliseconds: int = 0
    """Time that the guest may stand still at the end; 0: QEMU's default."""
    parallel_connections: int = 1
    """Connections that carry the memory."""
    auto_converge: bool = False
    """QEMU may slow the guest's processors down."""
    relays_disks: bool = False
    """As of ``PrepareMigrationTarget``."""


@dataclass(frozen=True, slots=True)
class PauseForMigration:
    """Pauses the guest of an outgoing migration, so that its memory changes no more and all of it can arrive.

    Nobody's wish: it runs again where it is released, or here when it stays. Nothing is done to a guest that stands still already, and
    once the migration is over. A launcher whose ``Hello.actions`` does not name it was born before it, and may not be asked.
    """

    migration_uid: str


@dataclass(frozen=True, slots=True)
class AbortMigration:
    """Ends a migration. In the source: the domain stays, the state becomes ``cancelled``. In a target: it stops waiting.

    A migration that has just succeeded stays ``succeeded``: the answer tells.
    """

    migration_uid: str


@dataclass(frozen=True, slots=True)
class ReleaseMigration:
    """Makes the domain that arrived in this target the pod's own, and lets it run.

    To be sent only when the source's launcher said ``succeeded``. Refused with ``Conflict`` when nothing arrived.
    """

    migration_uid: str
    paused: bool = False
    """Leave the guest paused, because its user paused it."""


@dataclass(frozen=True, slots=True)
class Read:
    """Asks for a text about the domain, one of those that ``Hello.reads`` names; answered by ``Content``.

    A launcher whose ``Hello`` does not name it was born before it, and may not be asked. Refused with ``Invalid`` when the text will not
    come however often it is asked for, with ``Conflict`` when it cannot be had in the present state, with ``Timeout`` when whoever has it
    does not answer.
    """

    what: str


Action = (
    GetStatus
    | Import
    | Sync
    | Shutdown
    | Destroy
    | Suspend
    | Resume
    | PrepareMigrationTarget
    | Migrate
    | PauseForMigration
    | AbortMigration
    | ReleaseMigration
)
Request = Action | Read


@dataclass(frozen=True, slots=True)
class DomainStatus:
    """The domain as libvirt sees it now."""

    name: str
    uuid: str
    type: Accelerator
    state: DomainState
    reason: str
    """libvirt's word for how it came into this state, e.g. ``booted``, ``user``, ``migrated``."""
    detail: str = ""
    """Detail of a pause that nobody asked for: the disks that failed."""
    full: bool = False
    """The storage of a disk that failed has no room left."""
    cpu_model: str = ""
    """The name of the CPU model that the domain was given; empty: none, or virt-launcher was born before it could say so."""
    cid: int = 0
    """Address of the guest's sockets to its node (AF_VSOCK); 0 without any."""


@dataclass(frozen=True, slots=True)
class Ending:
    """End of the run of the domain in this pod."""

    kind: EndingKind
    message: str = ""
    """For people: libvirt's error, or what was done."""
    migration_uid: str = ""
    log: tuple[str, ...] = ()
    """The last lines QEMU wrote to its log, when it failed or crashed. Not to be trusted."""
    time: float = 0.0
    """Unix time."""
    panicked: bool = False
    """Of ``crashed``: the guest's kernel said that it panicked."""
    watchdog: bool = False
    """Of ``crashed``: the guest's watchdog powered it off."""


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """A live migration that this pod takes or took part in."""

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
    """In the source how long the guest is expected to stand still; in the target, once it arrived, how long it did until then."""
    start_time: float = 0.0
    end_time: float = 0.0
    data_total_bytes: int = 0
    """Memory, and disks that are copied along; so the next two. 0: virt-launcher was born before it could say so."""
    data_processed_bytes: int = 0
    data_remaining_bytes: int = 0
    bytes_per_second: int = 0
    dirty_bytes_per_second: int = 0
    """Bytes that the guest writes to its memory; 0 before the second iteration."""


@dataclass(frozen=True, slots=True)
class InterfaceStatus:
    """An interface as the guest agent sees it; interfaces that only exist inside the guest have an empty ``name``."""

    name: str
    mac: str
    guest_device: str = ""
    """The guest's own name for it, such as ``eth0``."""
    ip_addresses: tuple[str, ...] = ()
    """Without loopback and link-local ones; IPv4 first."""


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """Answers of the guest agent. All of it is the guest's word."""

    connected: bool = False
    hostname: str = ""
    os_id: str = ""
    os_name: str = ""
    os_version: str = ""
    kernel_release: str = ""
    timezone: str = ""
    version: str = ""
    """Of the agent."""
    problem: str = ""
    """The reason why it does not answer although it is connected; what it said last stays."""


@dataclass(frozen=True, slots=True)
class AuthorizedKeysStatus:
    """State of the public keys that the guest agent sets."""

    state: Literal["waiting", "synchronized", "failed"] = "waiting"
    message: str = ""
    """Of ``failed``: what is in the way, for people; in part the guest's word."""


ImportPhase = Literal["Pending", "Downloading", "Converting", "Retrying", "Succeeded"]
"""``Pending``: another one comes first. ``Retrying``: it failed, and is tried again later."""


@dataclass(frozen=True, slots=True)
class ImportStatus:
    """The import of a disk's image."""

    disk: str
    phase: ImportPhase = "Pending"
    transferred_bytes: int = 0
    """Of the file as it is at its source."""
    total_bytes: int = 0
    """Of the same; 0: nobody knows."""
    failures: int = 0
    """Number of tries in vain."""
    message: str = ""
    """Reason why the last try failed."""


@dataclass(frozen=True, slots=True)
class DiskFault:
    """Errors of a disk after which the guest went on."""

    disk: str
    """The name that the machine has for it."""
    full: bool = False
    """Its storage has no room left; else reading or writing fails for another reason."""
    ignored: bool = False
    """The guest is not told."""


@dataclass(frozen=True, slots=True)
class DhcpStatus:
    """The server that tells the guest its addresses."""

    restarts: int = 0
    """Number of times it was found dead, and was started again."""
    problem: str = ""
    """Reason why it cannot be started again; empty where it answers, or nobody has to."""
    cause: str = ""
    """Cause of its last death."""


@dataclass(frozen=True, slots=True)
class Status:
    """Everything observed. Whoever has only just connected needs nothing more."""

    revision: int
    """Grows with every change within the life of a pod; a message with a smaller one than another is older."""
    domain: DomainStatus | None = None
    """None when there is no domain: not yet, or not any more."""
    started: bool = False
    """True once the domain ran in this pod, booted or migrated and released here. Never becomes false again."""
    ending: Ending | None = None
    """Set once the run is over; nothing will ever run in this pod again, and virt-launcher is about to exit."""
    stopping: bool = False
    """The guest was asked to shut down, by ``Shutdown`` or SIGTERM."""
    grace_seconds: float | None = None
    """The shortest grace period that it was given since; None before it was asked, or virt-launcher was born before it could say so."""
    consoles: int = 0
    """Connections to the console socket."""
    reboots: int = 0
    """Number of the guest's reboots in this pod."""
    watchdogs: int = 0
    """Number of times that the guest's watchdog fired in this pod."""
    interfaces: tuple[InterfaceStatus, ...] = ()
    agent: AgentStatus = field(default_factory=AgentStatus)
    authorized_keys: AuthorizedKeysStatus = field(default_factory=AuthorizedKeysStatus)
    lost_filesystems: tuple[str, ...] = ()
    """Names of file systems that nobody serves any more: their files cannot be used until the machine is started again."""
    passt_ends: int = 0
    """Number of times that passt, which makes the connections of the guest, ended in this pod; another one takes its place."""
    passt_problem: str = ""
    """Reason why there is none now, in part its own words; empty while it runs, and where the guest has no such interface."""
    migrations: tuple[MigrationStatus, ...] = ()
    """Newest last, at most four."""
    imports: tuple[ImportStatus, ...] = ()
    """Imports that ``Import`` asked for, in the machine's order; none of images that were there."""
    servers_silent: tuple[str, ...] = ()
    """Names of disks to whose server there is no connection, and none can be made."""
    disk_faults: tuple[DiskFault, ...] = ()
    """Disks that failed, or have no room, while the guest goes on."""
    has_room: bool = False
    """The guest stands still because the storage of a disk was full, and a ``Resume`` is worth a try."""
    dhcp: DhcpStatus = field(default_factory=DhcpStatus)
    not_migratable: str = ""
    """Reason why a migration would be refused; empty when nothing is known to stand in its way."""

    def migration_of(self, uid: str) -> MigrationStatus | None:
        """Return the migration with this uid if this pod takes or took part in it."""
        return next((migration for migration in self.migrations if migration.uid == uid), None)


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a connection."""

    protocol: int
    launcher_version: str
    status: Status
    reads: tuple[str, ...] = ()
    """Names that ``Read`` may ask for."""
    actions: tuple[str, ...] = ()
    """Requests that it knows beyond those of its first release."""


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The newest status."""

    status: Status


RefusalReason = Literal["Conflict", "Invalid", "Failed", "Timeout", "NotReady"]
"""``Conflict``: not in this state, e.g. resume without a domain. ``Invalid``: the request cannot be right, whenever it is sent.
``Failed``: libvirt or QEMU could not. ``Timeout``: libvirt has not answered; ask for the status later. ``NotReady``: something that others
make is not there yet (``Refusal.disks``), or there is no room for it; send it again."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request and the id that its answer will carry."""

    id: int
    request: Request


@dataclass(frozen=True, slots=True)
class Reply:
    """The request was carried out, or begun where it says so; this is the status now."""

    id: int
    status: Status


@dataclass(frozen=True, slots=True)
class Refusal:
    """The request was not carried out."""

    id: int
    reason: RefusalReason
    message: str
    status: Status
    disks: tuple[str, ...] = ()
    """Names of the disks whose image is missing, for ``NotReady``."""
    full: bool = False
    """Their claims have too little room for the disks that are to be created in them; the message says how much."""


@dataclass(frozen=True, slots=True)
class Content:
    """The text that a ``Read`` asked for. It may hold the guest's word: not to be trusted."""

    id: int
    text: str
    """JSON or XML, as ``Read.what`` has it; at most ``codec.MAX_CONTENT_BYTES`` on the wire."""


LATER_ACTIONS: Final = (Import.__name__, PauseForMigration.__name__)
"""``Hello.actions`` of this release."""

FromLauncher = Hello | StatusChanged | Reply | Refusal | Content
FromHandler = Call
