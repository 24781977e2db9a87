"""``VirtualMachine`` and ``Migration``: their fields, with the texts for ``kubectl explain``.

The lists of devices are atomic (``docs/decisions/api.md``).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from apiserver.apis.meta.schema import ATOMIC, Int32, Int64, Kind, Model, Time, keyed_by
from apiserver.apis.virt.lifecycle import migration_attempts, operations
from apiserver.apis.virt.lifecycle.conditions import TYPES as CONDITION_TYPES
from apiserver.apis.virt.lifecycle.evictions import Strategy
from apiserver.apis.virt.lifecycle.node_loss import Policy
from apiserver.apis.virt.lifecycle.power import Action, Result, RunStrategy
from apiserver.apis.virt.spec import hot_plug, hot_plug_interfaces
from apiserver.apis.virt.spec.live_changes import KNOWN as LIVE_CHANGES
from apiserver.apis.virt.v1alpha1.access_credentials import AccessCredential
from apiserver.apis.virt.v1alpha1.domain.document import Domain
from apiserver.apis.virt.v1alpha1.domain.graphics import Graphics
from apiserver.apis.virt.v1alpha1.guest_commands import Lifecycle
from apiserver.apis.virt.v1alpha1.managed_save import ManagedSave, ManagedSaveStatus
from apiserver.apis.virt.v1alpha1.migration_policy import MigrationOptions
from apiserver.apis.virt.v1alpha1.probes import Probe
from apiserver.apis.virt.v1alpha1.scheduling import Affinity, Toleration, TopologySpreadConstraint


class Rerun(Model):
    """Restarts after a failed start."""

    limit: Int32 | None = Field(
        None,
        description="Number of restarts after a failed start, on other nodes where possible. Default 2, at most 9. Attempts without a "
        "running container, because an image, volume or node was missing, do not count.",
    )
    start_timeout_seconds: Int32 | None = Field(
        None,
        description="Seconds from the start of the container to a running guest; after that, the start counts as failed. Default 180.",
    )


class VirtualMachineSpec(Model):
    """The desired virtual machine."""

    run_strategy: RunStrategy | None = Field(
        None,
        description="When the machine runs. Always: it starts again whenever it is off. RerunOnFailure (the default): it starts, and "
        "again after a failure, until the guest powers off. Once: it starts one time. Manual: it starts by the verb start. Under Once and "
        "Manual, a guest that the cluster ended, for example by an eviction, starts again. Halted: off; a running guest is shut down. "
        "The verbs start and stop override the strategy until it is edited. An edit of the spec resets the count of failed starts.",
    )
    rerun: Rerun | None = Field(None, description="Restarts after a failed start.")
    termination_grace_period_seconds: Int64 | None = Field(
        None, description="Seconds between the request to shut down and a forced power-off. Default 30."
    )
    eviction_strategy: Strategy | None = Field(
        None,
        description="Effect of an eviction of the machine's pod, as by kubectl drain. LiveMigrate: the guest migrates to another "
        "node first; the drain waits for a guest that cannot migrate. LiveMigrateIfPossible: a guest that cannot migrate is shut down. "
        "Shutdown: the guest is shut down. External: the guest stays, and another program moves it. Default: the chart's "
        "value evictionStrategy.",
    )
    on_node_loss: Policy | None = Field(
        None,
        description="What follows when the machine's node is certainly off (kubectl virt fence). Restart: the machine starts on another "
        "node if runStrategy wants it on, in the order of priorityClassName. Wait: it stays off until the verb start. Default Restart.",
    )
    node_selector: dict[str, str] | None = Field(
        None,
        description="Labels that the node must have. kubevirt.io/hostname stands for kubernetes.io/hostname.",
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )
    affinity: Affinity | None = Field(None, description="Affinity to nodes and pods, and anti-affinity to pods, as in a Pod.")
    tolerations: list[Toleration] | None = Field(None, description="Tolerated taints of nodes, as in a Pod.", json_schema_extra=ATOMIC)
    topology_spread_constraints: list[TopologySpreadConstraint] | None = Field(
        None,
        description="Spread of machines over nodes or zones, as in a Pod.",
        json_schema_extra=keyed_by("topologyKey", "whenUnsatisfiable"),
    )
    priority_class_name: str | None = Field(None, description="The PriorityClass of the machine's pod.")
    scheduler_name: str | None = Field(None, description="The scheduler of the machine's pod, if not the default one.")
    node_name: str | None = Field(None, description="The node that the machine runs on; no scheduler takes part. Prefer nodeSelector.")
    access_credentials: list[AccessCredential] | None = Field(
        None, description="Keys for logging in to the guest, and how the guest gets them.", json_schema_extra=ATOMIC
    )
    managed_save: ManagedSave | None = Field(None, description="Storage for the guest's memory, for the verb suspend.")
    lifecycle: Lifecycle | None = Field(None, description="Commands that the guest agent runs at moments of the guest's life.")
    readiness_probe: Probe | None = Field(
        None,
        description="Test of whether the guest is ready. Until it succeeds, and while it fails, the machine is not Ready and Services "
        "send no traffic to it.",
    )
    liveness_probe: Probe | None = Field(
        None,
        description="Test of whether the guest is alive. After it fails, the guest is shut down within the grace period, the attempt "
        "counts as failed, and runStrategy applies.",
    )
    domain: Domain | None = Field(
        None,
        description="The machine itself: processors, memory, firmware, devices. Required without domainXML. Together with domainXML, it "
        "has the disks and networks that the XML's placeholders name; its processors and memory override those of the XML.",
    )
    domain_xml: str | None = Field(
        None,
        alias="domainXML",
        description="The machine itself as libvirt's domain XML, at most 64 KiB. libvirt gets it byte for byte, except for the "
        "placeholders and values that docs/domain-xml.md names. XML that reaches outside the machine's pod is rejected.",
    )


class Condition(Model):
    """One aspect of the current state."""

    type: str = Field(description="The aspect, in CamelCase.")
    status: Literal["True", "False", "Unknown"] = Field(description="True if it holds.")
    reason: str | None = Field(None, description="The reason, in one CamelCase word.")
    message: str | None = Field(None, description="The reason, for people.")
    last_transition_time: Time | None = Field(None, description="Time of the last change of the status.")
    observed_generation: Int64 | None = Field(None, description="The generation of the spec that this is about.")


class Attempt(Model):
    """One start of the machine, with its result."""

    number: Int32 = Field(description="Counted from 1.")
    generation: Int64 | None = Field(None, description="The generation of the spec at its start.")
    pod_name: str | None = Field(None, description="The pod that it ran in.")
    node_name: str | None = Field(None, description="The node that it ran on; after a migration, its target.")
    start_node_name: str | None = Field(None, description="The node that it started on; absent without a migration.")
    start_time: Time | None = Field(None, description="Time at which the pod was created.")
    running_time: Time | None = Field(None, description="Time at which the guest began to run; absent if it never ran.")
    stop_time: Time | None = Field(
        None, description="Time at which virt-controller asked the guest to shut down; absent without such a request."
    )
    end_time: Time | None = Field(None, description="Time of its end.")
    result: Result | None = Field(
        None,
        description="How it ended: the guest powered off, something failed, a stop was requested, or the guest was suspended. Absent "
        "while it runs.",
    )
    message: str | None = Field(None, description="The reason of its end, for people.")


class DomainStatus(Model):
    """The domain as libvirt sees it."""

    state: str | None = Field(None, description="libvirt's state: running, paused, shutdown, shutoff, crashed…")
    reason: str | None = Field(None, description="libvirt's reason for the state: booted, migrated, user…")
    type: str | None = Field(None, description="kvm: the processor runs the guest. qemu: it is emulated, and slower.")
    cpu_model: str | None = Field(
        None, description="The model of status.cpu, if the guest runs with it. A migration then requires only this model of its target."
    )
    live_changes: list[str] | None = Field(
        None,
        description=f"What the guest takes without a restart: settings ({', '.join(LIVE_CHANGES)}), and new and removed devices "
        f"({', '.join((*hot_plug.KINDS, hot_plug_interfaces.INTERFACE))}). Absent under older versions.",
        json_schema_extra=ATOMIC,
    )


class CPUStatus(Model):
    """The CPU of a KVM machine without a model in its spec."""

    model: str = Field(description="The best libvirt model that all possible nodes of the machine had at its start, or host-passthrough.")
    features: list[str] | None = Field(None, description="Further features that all of these nodes had.", json_schema_extra=ATOMIC)
    message: str | None = Field(None, description="The reason why it is host-passthrough, for people.")


class VsockStatus(Model):
    """Sockets between the guest and its node."""

    cid: Int64 | None = Field(
        None, description="The guest's address on its node (AF_VSOCK), as reported by its pod; it does not authenticate a caller."
    )


class InterfaceStatus(Model):
    """The state of a network interface."""

    name: str = Field(description="Its name in the spec.")
    mac: str | None = Field(None, description="The card's address.")
    ip_address: str | None = Field(None, alias="ipAddress", description="An address of the guest that others can reach.")
    ip_addresses: list[str] | None = Field(None, alias="ipAddresses", description="All of its addresses.", json_schema_extra=ATOMIC)


class ImportStatus(Model):
    """The import of a disk's image into its claim."""

    disk: str = Field(description="The disk's name in the spec.")
    phase: Literal["Pending", "Downloading", "Converting", "Retrying", "Succeeded"] | None = Field(
        None,
        description="Its state. Pending: another import runs first. Converting: the downloaded image is converted to a raw disk. "
        "Retrying: it failed and is retried within five minutes.",
    )
    transferred_bytes: Int64 | None = Field(None, description="Downloaded bytes of the file at its source.")
    total_bytes: Int64 | None = Field(None, description="Bytes of that file; absent if the server does not report it.")
    failures: Int32 | None = Field(None, description="Number of failed tries.")
    message: str | None = Field(None, description="The reason of the last failure, for people.")


class GuestAgent(Model):
    """The QEMU guest agent."""

    connected: bool | None = Field(None, description="Whether the agent runs in the guest, according to its channel.")
    version: str | None = Field(None, description="Its version.")


class GuestOS(Model):
    """The guest's operating system."""

    id: str | None = Field(None, description="One word for it, as ID in os-release: debian, mswindows.")
    name: str | None = Field(None, description="Its name, for people.")
    version: str | None = Field(None, description="Its version.")
    kernel_release: str | None = Field(None, description="The release of its kernel.")


class GuestInterface(Model):
    """A network interface of the spec as the guest sees it."""

    name: str = Field(description="Its name in the spec.")
    device: str | None = Field(None, description="The guest's name for it, such as eth0.")
    ip_addresses: list[str] | None = Field(
        None, alias="ipAddresses", description="The interface's addresses, without link-local ones.", json_schema_extra=ATOMIC
    )


class GuestStatus(Model):
    """Facts from the QEMU guest agent, which may be false."""

    agent: GuestAgent | None = Field(None, description="The agent that reported this.")
    os: GuestOS | None = Field(None, description="The guest's operating system.")
    hostname: str | None = Field(None, description="The guest's host name.")
    timezone: str | None = Field(None, description="The guest's time zone.")
    interfaces: list[GuestInterface] | None = Field(
        None, description="The network interfaces of the spec, as the guest has them.", json_schema_extra=ATOMIC
    )
    time: Time | None = Field(
        None, description="Time of the last update, at most once a minute. The last values stay when the agent disconnects."
    )


class MigrationState(Model):
    """The current or last live migration."""

    name: str | None = Field(None, description="The Migration's name.")
    uid: str | None = Field(None, description="The Migration's uid.")
    source_node: str | None = Field(None, description="The source node.")
    source_pod: str | None = Field(None, description="The source pod.")
    target_node: str | None = Field(None, description="The target node.")
    target_pod: str | None = Field(None, description="The target pod.")
    start_time: Time | None = Field(None, description="Time at which the guest's memory began to move.")
    end_time: Time | None = Field(None, description="Time of its end.")
    phase: str | None = Field(None, description="The Migration's phase.")


class Request(Model):
    """The last verb that turned the machine on or off."""

    action: Action = Field(description="The verb. Pause and Unpause are from an earlier version; status.pause replaces them.")
    time: Time | None = Field(None, description="The time of the call.")
    run_strategy: RunStrategy | None = Field(None, description="The run strategy at that time; an edit overrides the verb.")
    generation: Int64 | None = Field(None, description="The generation of the spec at that time.")
    attempt: Int32 | None = Field(None, description="The attempt that the verb starts or affects.")
    node_selector: dict[str, str] | None = Field(None, description="Of Start: labels that the node of that attempt must have.")
    grace_period_seconds: Int64 | None = Field(
        None, description="Of Stop: the guest's time to shut down, if it is shorter than the spec's; 0 powers it off at once."
    )


class Call(Model):
    """A call of a verb with an id."""

    id: str = Field(description="The id that the caller gave.")
    verb: str = Field(description="The verb.")


class Pause(Model):
    """The pause that users requested."""

    wanted: bool = Field(description="True after pause, false after unpause.")
    attempt: Int32 | None = Field(None, description="The attempt that it is about; a later attempt starts unpaused.")
    generation: Int64 | None = Field(None, description="The generation of the spec when the verb was called.")
    time: Time | None = Field(None, description="The time of the call.")


class OperationParameters(Model):
    """Parameters of an operation; each action has its own."""

    keys: list[str] | None = Field(
        None,
        description="Of SendKey: the keys that are pressed together, as Linux's names, such as KEY_ENTER, or numbers.",
        json_schema_extra=ATOMIC,
    )
    hold_milliseconds: Int32 | None = Field(None, description="Of SendKey: how long they are held down.")
    unfreeze_timeout_seconds: Int32 | None = Field(
        None, description="Of Freeze: after how many seconds the file systems thaw by themselves."
    )
    node_disk: bool | None = Field(None, description="Of Suspend: the memory goes to the node's disk.")


class Operation(Model):
    """One operation on the running guest, executed at most once."""

    id: str = Field(description="Its id. The caller of a verb may set it; another call with the same id has no effect.")
    number: Int32 = Field(description="Counted from 1, the order of execution.")
    action: operations.Action = Field(
        description="The operation. Reset: the machine is reset at once. Resume: processors that a fault stopped run again. SoftReboot: "
        "the guest is asked to reboot. InjectNMI: the processors get a non-maskable interrupt. SendKey: keys are pressed. "
        "Suspend: the guest's memory is saved, and the attempt ends. Freeze, Thaw: the guest agent freezes or thaws its file systems."
    )
    parameters: OperationParameters | None = Field(None, description="Parameters of the operation, if it has any.")
    attempt: Int32 | None = Field(None, description="The attempt that it is about; it fails if the attempt ends first.")
    time: Time | None = Field(None, description="The time of the call.")
    percent: Int32 | None = Field(None, description="Of Suspend: how much of the guest's memory was saved.")
    result: operations.Result | None = Field(None, description="Its result. Absent until it ends.")
    message: str | None = Field(None, description="The reason of a failure, for people.")
    completion_time: Time | None = Field(None, description="Time at which virt-handler learned of its end.")


class PhaseTransitionTimestamp(Model):
    """The time of a phase's begin."""

    phase: str = Field(description="The phase.")
    time: Time = Field(description="The moment, with microseconds.")


class RunningHardware(Model):
    """All fields of the spec that describe the guest's hardware, as it runs, while an edit waits for the next start."""

    generation: Int64 | None = Field(None, description="The last generation of the spec that had them all.")
    domain: Domain | None = Field(None, description="spec.domain of the guest.")
    domain_xml: str | None = Field(None, alias="domainXML", description="spec.domainXML of the guest.")
    access_credentials: list[AccessCredential] | None = Field(
        None, description="spec.accessCredentials of the guest.", json_schema_extra=ATOMIC
    )
    managed_save: ManagedSave | None = Field(None, description="spec.managedSave of the guest.")
    lifecycle: Lifecycle | None = Field(None, description="spec.lifecycle of the guest.")
    reserved_claims: list[str] | None = Field(
        None,
        description="PersistentVolumeClaims that this machine keeps from others, for disks that the guest does not have yet.",
        json_schema_extra=ATOMIC,
    )


class HotplugVolumeStatus(Model):
    """The attachment pod that mounts a disk's claim or image for a running guest."""

    attach_pod_name: str | None = Field(None, description="The pod's name.")
    attach_pod_uid: str | None = Field(None, alias="attachPodUID", description="The pod's uid.")


class VolumeStatus(Model):
    """A disk or medium that was added to a running machine, and its attachment pod."""

    name: str = Field(description="The disk's name in the spec.")
    claim_name: str | None = Field(None, description="The disk's PersistentVolumeClaim.")
    phase: Literal["Pending", "AttachedToNode"] | None = Field(
        None, description="Pending: it waits for the claim or the pod. AttachedToNode: the pod runs on the guest's node."
    )
    reason: str | None = Field(None, description="Why it is Pending, in one CamelCase word.")
    message: str | None = Field(None, description="The same, for people.")
    hotplug_volume: HotplugVolumeStatus | None = Field(None, description="The pod that has the claim.")


class PodResize(Model):
    """The guest memory that a resized pod has room for, and why that is not enough."""

    guest_memory_bytes: Int64 | None = Field(
        None, description="Memory that the guest may have in its pod, in bytes. Default: as at the start."
    )
    reason: str | None = Field(None, description="Why the pod does not have the desired memory yet, in one CamelCase word.")
    message: str | None = Field(None, description="The same, for people.")


class DeviceStatus(Model):
    """A device of the guest, as libvirt has it."""

    kind: Literal["disk", "interface"] = Field(description="The kind of device, in libvirt's word.")
    name: str = Field(description="Its name in the spec.")
    target: str | None = Field(None, description="libvirt's name for it: of a disk vda and the like, of an interface its tap device.")
    address: str | None = Field(None, description="Its place in the guest: the type of the bus, and the address there.")
    empty: bool | None = Field(None, description="True for a CD-ROM drive without a medium.")


class Change(Model):
    """An edit that a running guest takes without a restart."""

    path: str = Field(description="The path of the setting, with the device's name in brackets.")
    state: Literal["Pending", "Failed", "Applied"] = Field(
        description="Pending: it waits, or is under way. Failed: the last attempt failed, and another one follows. Applied: the guest has "
        "it, and the entry is removed at once."
    )
    message: str | None = Field(None, description="The reason, for people.")
    time: Time | None = Field(None, description="Time at which virt-handler entered this state.")


class VirtualMachineStatus(Model):
    """The actual virtual machine, written by the system."""

    observed_generation: Int64 | None = Field(None, description="The generation of the spec that this is about.")
    phase: (
        Literal["Pending", "Scheduling", "Scheduled", "Running", "Stopping", "Stopped", "Succeeded", "Failed", "Suspended", "Unknown"]
        | None
    ) = Field(
        None,
        description="A summary. Pending: something is missing. Scheduling: its pod was created. Scheduled: the pod runs on nodeName. "
        "Running: the guest runs. Stopping: the guest was asked to shut down. Stopped: off, as requested. Succeeded: the guest powered "
        "off by itself. Failed: see the conditions. Suspended: off, with the guest's memory in managedSave. Unknown: the node does not "
        "report.",
    )
    conditions: list[Condition] | None = Field(
        None,
        description=f"{', '.join(CONDITION_TYPES)}: each with its reason.",
        json_schema_extra=keyed_by("type"),
    )
    attempt: Int32 | None = Field(None, description="The number of the current start, part of the pod's name.")
    attempts: list[Attempt] | None = Field(
        None, description="The last ten starts with their results, the newest last.", json_schema_extra=keyed_by("number")
    )
    node_name: str | None = Field(None, description="The node that the machine is on.")
    pod_name: str | None = Field(None, description="The pod that the machine is in.")
    pod_uid: str | None = Field(None, alias="podUID", description="The uid of that pod, because pod names are reused.")
    pod_ip: str | None = Field(None, alias="podIP", description="The address of that pod.")
    cpu: CPUStatus | None = Field(None, description="With KVM, the CPU that was chosen at the start, if spec.domain.cpu.model is empty.")
    domain: DomainStatus | None = Field(None, description="The domain as libvirt sees it.")
    interfaces: list[InterfaceStatus] | None = Field(None, description="Network interfaces as they are.", json_schema_extra=ATOMIC)
    imports: list[ImportStatus] | None = Field(
        None, description="Images that are downloaded into claims, until the guest has these disks.", json_schema_extra=ATOMIC
    )
    guest: GuestStatus | None = Field(
        None, description="Information from the guest's agent, if it reported any; the subresource guestinfo has more."
    )
    fs_freeze_status: Literal["frozen"] | None = Field(
        None, description="frozen: the guest's file systems are frozen, by the verb freeze; absent: they are not."
    )
    graphics: list[Graphics] | None = Field(None, description="Displays for viewers.", json_schema_extra=ATOMIC)
    vsock: VsockStatus | None = Field(None, description="Sockets between the guest and its node, as they are.")
    devices: list[DeviceStatus] | None = Field(
        None, description="Disks and network interfaces of the guest, as libvirt reports them.", json_schema_extra=ATOMIC
    )
    volume_status: list[VolumeStatus] | None = Field(
        None, description="Claims that were added to the running machine, with their pods.", json_schema_extra=ATOMIC
    )
    pod_resize: PodResize | None = Field(None, description="The memory of the guest's pod, after an edit of the running machine's memory.")
    running: RunningHardware | None = Field(
        None,
        description="The running guest's hardware, while an edit of the spec waits for the next start. Absent if it equals the spec's.",
    )
    changes: list[Change] | None = Field(
        None,
        description="Edits of spec.domain that the running guest takes without a restart, and does not have yet.",
        json_schema_extra=ATOMIC,
    )
    managed_save: ManagedSaveStatus | None = Field(
        None, description="The image of the suspended guest's memory, until the guest runs again. A start resumes from it."
    )
    migration: MigrationState | None = Field(None, description="The current or last live migration.")
    request: Request | None = Field(None, description="The last verb that turned the machine on or off.")
    calls: list[Call] | None = Field(
        None,
        description="The last ten calls of start, stop, poweroff, restart, pause and unpause that had an id; another call with the same id "
        "has no effect.",
        json_schema_extra=keyed_by("id"),
    )
    pause: Pause | None = Field(None, description="The pause that the last call of pause or unpause requested.")
    operations: list[Operation] | None = Field(
        None,
        description="The last ten operations on the running guest, from verbs such as reset, the newest last.",
        json_schema_extra=keyed_by("id"),
    )
    run_strategy_generation: Int64 | None = Field(
        None, description="The generation of the last edit of the run strategy after a verb; older verbs no longer apply."
    )
    phase_transition_timestamps: list[PhaseTransitionTimestamp] | None = Field(
        None, description="Times at which this attempt entered its phases.", json_schema_extra=ATOMIC
    )


class VirtualMachine(Kind):
    """A machine with its own processors, memory, disks and kernel, run by libvirt and QEMU inside a pod."""

    spec: VirtualMachineSpec = Field(description="The desired machine, written by users.")
    status: VirtualMachineStatus | None = Field(None, description="The actual machine, written by the system.")


class MigrationSelector(Model):
    """The virtual machine to migrate."""

    name: str = Field(description="The name of a VirtualMachine in the same namespace.")


class MigrationSpec(Model):
    """The machine, and constraints on its target node."""

    selector: MigrationSelector = Field(description="The virtual machine.")
    node_selector: dict[str, str] | None = Field(
        None,
        description="Labels that the target node must have, in addition to those in the machine's spec; a label here replaces the same "
        "one there. kubevirt.io/hostname stands for kubernetes.io/hostname.",
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )
    priority: Int32 | None = Field(
        None,
        description="Priority among waiting migrations, from -100 to 100; the highest starts first. Default 0. A value above 0 requires "
        "the right to patch Nodes, as cordon does.",
    )


class MigrationProgress(Model):
    """Progress of memory and copied disks: figures of virDomainGetJobStats."""

    total_bytes: Int64 | None = Field(None, description="Bytes of the memory and the disks (data_total).")
    processed_bytes: Int64 | None = Field(
        None,
        description="Bytes sent (data_processed). Memory that the guest writes during the migration is sent again, so this may exceed "
        "totalBytes.",
    )
    remaining_bytes: Int64 | None = Field(None, description="Bytes not sent yet (data_remaining).")
    bytes_per_second: Int64 | None = Field(None, description="Bytes per second on the network (memory_bps and disk_bps).")
    dirty_bytes_per_second: Int64 | None = Field(
        None,
        description="Bytes per second that the guest writes to its memory (memory_dirty_rate times memory_page_size); 0 before the second "
        "iteration.",
    )
    iteration: Int64 | None = Field(None, description="Number of the current pass over the guest's memory, from 1 (memory_iteration).")
    expected_remaining_seconds: Int64 | None = Field(
        None,
        description="Remaining seconds at these rates. Absent if the guest writes as fast as its memory is sent, and at the end.",
    )
    elapsed_milliseconds: Int64 | None = Field(None, description="Milliseconds since its start, or until its end (time_elapsed).")
    downtime_milliseconds: Int64 | None = Field(
        None,
        description="At the end: milliseconds that the guest was paused until it was complete on the target (downtime). The time from "
        "then until the source is known to have ended is not included.",
    )
    last_update_time: Time | None = Field(None, description="Time of the last update, at most every five seconds.")


class MigrationAttempt(Model):
    """A failed attempt; the guest continued on the source."""

    number: Int32 = Field(description="Counted from 1.")
    target_node: str | None = Field(None, description="The intended target node; absent if none was found.")
    target_pod: str | None = Field(None, description="The intended target pod.")
    reason: str | None = Field(
        None,
        description=f"Why it failed, one of {', '.join(migration_attempts.REASONS)}: causes outside the machine, so another attempt "
        "may succeed.",
    )
    message: str | None = Field(None, description="The reason of its failure, for people.")
    end_time: Time | None = Field(None, description="Time at which the failure was noticed.")


class MigrationStatus(Model):
    """The state of the migration, written by the system."""

    phase: Literal["Pending", "Scheduling", "PreparingTarget", "TargetReady", "Running", "Succeeded", "Failed", "Cancelled"] | None = Field(
        None,
        description="A summary. Pending: not started. Scheduling: the target pod was created. PreparingTarget: that pod runs. "
        "TargetReady: it can receive. Running: the guest's memory is sent. Succeeded: the guest runs on the target. Failed, Cancelled: "
        "the guest continues on the source. The last three are final.",
    )
    conditions: list[Condition] | None = Field(None, description="Details, each with its reason.", json_schema_extra=keyed_by("type"))
    observed_generation: Int64 | None = Field(None, description="The generation of the spec that this is about.")
    source_node: str | None = Field(None, description="The source node.")
    source_pod: str | None = Field(None, description="The source pod.")
    source_pod_uid: str | None = Field(None, alias="sourcePodUID", description="The uid of that pod.")
    target_node: str | None = Field(None, description="The target node.")
    target_pod: str | None = Field(None, description="The target pod.")
    target_pod_uid: str | None = Field(None, alias="targetPodUID", description="The uid of that pod.")
    target_pod_ips: list[str] | None = Field(
        None,
        alias="targetPodIPs",
        description="Addresses of the target pod. After the move, connections to the source pod are forwarded to them.",
        json_schema_extra=ATOMIC,
    )
    target_address: str | None = Field(None, description="Listening address of the target's virt-handler, as host:port.")
    policy: str | None = Field(None, description="The MigrationPolicy that applies; absent if none does.")
    options: MigrationOptions | None = Field(None, description="Limits, from the policy and the cluster's defaults at its start.")
    attempt: Int32 | None = Field(
        None,
        description="The number of the current attempt, from 1. After a broken connection or the end of the target pod, another attempt "
        f"follows with another target pod; at most {migration_attempts.MAX_ATTEMPTS} in all.",
    )
    attempts: list[MigrationAttempt] | None = Field(
        None, description="The failed attempts, the newest last.", json_schema_extra=keyed_by("number")
    )
    start_time: Time | None = Field(None, description="Time of its start.")
    end_time: Time | None = Field(None, description="Time of its end.")
    message: str | None = Field(None, description="The reason of its end, for people.")
    progress: MigrationProgress | None = Field(None, description="Progress of the guest's memory; absent before it moves.")
    phase_transition_timestamps: list[PhaseTransitionTimestamp] | None = Field(
        None, description="Times at which it entered its phases.", json_schema_extra=ATOMIC
    )


class Migration(Kind):
    """Moves a running virtual machine to another node. Deleting an unfinished Migration cancels it."""

    spec: MigrationSpec = Field(description="The machine to migrate and its possible nodes. Immutable.")
    status: MigrationStatus | None = Field(None, description="The state of the migration, written by the system.")
