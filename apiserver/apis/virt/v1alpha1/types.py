"""``VirtualMachine`` and ``Migration``: their shape, and the texts that ``kubectl explain`` prints.

Only shape: defaults are in ``defaults``, rules in ``validation``. Field names are snake_case here and camelCase in JSON.

The lists of devices are atomic: whoever applies a manifest says which devices there are, all of them. Keyed by name they would keep what
defaulting once added (the interface ``default`` beside the user's own), and kubectl refuses to merge a keyed list when an element lacks
its key, as the disk of the project's first manifest does. Price: two appliers cannot own a device each.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from apiserver.apis.meta.schema import ATOMIC, Int32, Int64, Kind, Model, Time, keyed_by
from apiserver.apis.virt.lifecycle import migration_attempts, operations
from apiserver.apis.virt.lifecycle.conditions import TYPES as CONDITION_TYPES
from apiserver.apis.virt.lifecycle.evictions import Strategy
from apiserver.apis.virt.lifecycle.power import Action, Result, RunStrategy
from apiserver.apis.virt.v1alpha1.access_credentials import AccessCredential
from apiserver.apis.virt.v1alpha1.domain.document import Domain
from apiserver.apis.virt.v1alpha1.domain.graphics import Graphics
from apiserver.apis.virt.v1alpha1.migration_policy import MigrationOptions
from apiserver.apis.virt.v1alpha1.probes import Probe
from apiserver.apis.virt.v1alpha1.scheduling import Affinity, Toleration, TopologySpreadConstraint


class Rerun(Model):
    """Further starts after a failed one."""

    limit: Int32 | None = Field(
        None,
        description="Number of further starts that are tried after a failed one, on other nodes where possible. Default 2, at most 9. An "
        "attempt whose container never ran, for want of an image, a volume or a node, is none of them.",
    )
    start_timeout_seconds: Int32 | None = Field(
        None,
        description="A start that has not led to a running guest this many seconds after its container ran counts as failed. Default 180.",
    )


class VirtualMachineSpec(Model):
    """The virtual machine as it should be."""

    run_strategy: RunStrategy | None = Field(
        None,
        description="Times at which the machine is on. Always: started again whenever it is off. RerunOnFailure (the default): started, "
        "and again when it failed, until the guest powers off by itself. Once: started one time. Manual: only by the start verb. A guest "
        "that the cluster ended, as by an eviction, is started again under these two, too. Halted: off, and shut down when it is on. The "
        "verbs start and stop count until the strategy is edited. An edit of the spec forgets failed starts.",
    )
    rerun: Rerun | None = Field(None, description="Further starts after a failed one.")
    termination_grace_period_seconds: Int64 | None = Field(
        None, description="Seconds that the guest has to shut down after it was asked to, before its power is cut. Default 30."
    )
    eviction_strategy: Strategy | None = Field(
        None,
        description="Effect of an eviction of the machine's pod, as by kubectl drain. LiveMigrate: the guest moves to another node first, "
        "and one that cannot stays, so that the drain waits. LiveMigrateIfPossible: one that cannot is shut down. Shutdown: every guest "
        "is. External: it stays, and another program moves it. Default: the cluster's, of the chart's value evictionStrategy.",
    )
    node_selector: dict[str, str] | None = Field(
        None,
        description="Labels that the node must have. kubevirt.io/hostname stands for kubernetes.io/hostname.",
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )
    affinity: Affinity | None = Field(None, description="Attraction to nodes and pods, and aversion to pods, as in a Pod.")
    tolerations: list[Toleration] | None = Field(
        None, description="Taints of nodes that do not keep the machine away, as in a Pod.", json_schema_extra=ATOMIC
    )
    topology_spread_constraints: list[TopologySpreadConstraint] | None = Field(
        None,
        description="Spread of machines over nodes or zones, as in a Pod.",
        json_schema_extra=keyed_by("topologyKey", "whenUnsatisfiable"),
    )
    priority_class_name: str | None = Field(None, description="The PriorityClass of the machine's pod.")
    scheduler_name: str | None = Field(None, description="The scheduler that places the machine's pod, if not the default one.")
    node_name: str | None = Field(None, description="The one node that the machine runs on, past every scheduler. Rather use nodeSelector.")
    access_credentials: list[AccessCredential] | None = Field(
        None, description="Keys with which people may log in to the guest, and the way in which it hears of them.", json_schema_extra=ATOMIC
    )
    readiness_probe: Probe | None = Field(
        None,
        description="Test that the guest is ready: until it succeeds, and while it fails, the machine is not Ready, and no Service sends "
        "anything to the guest.",
    )
    liveness_probe: Probe | None = Field(
        None,
        description="Test that the guest is alive: once it fails, the guest has the grace period to shut down, the attempt has failed, and "
        "runStrategy says what follows.",
    )
    domain: Domain | None = Field(
        None,
        description="The machine itself: processors, memory, firmware, devices. Required unless there is domainXML; beside it, what has "
        "the disks and networks that its placeholders name, and processors and memory that win over those in it.",
    )
    domain_xml: str | None = Field(
        None,
        alias="domainXML",
        description="The machine itself as libvirt's domain XML, of at most 64 KiB. libvirt is given it byte for byte, but for the "
        "placeholders and values that docs/domain-xml.md names. What would reach out of the machine's pod is refused.",
    )


class Condition(Model):
    """One aspect of the present state."""

    type: str = Field(description="The aspect, in CamelCase.")
    status: Literal["True", "False", "Unknown"] = Field(description="True if it holds.")
    reason: str | None = Field(None, description="The reason, in one CamelCase word.")
    message: str | None = Field(None, description="The reason, for people.")
    last_transition_time: Time | None = Field(None, description="Time of the last change of the status.")
    observed_generation: Int64 | None = Field(None, description="The generation of the spec that this was seen with.")


class Attempt(Model):
    """One start of the machine, and what became of it."""

    number: Int32 = Field(description="Counted from 1.")
    generation: Int64 | None = Field(None, description="The generation of the spec that it was begun with.")
    pod_name: str | None = Field(None, description="The pod that it ran in.")
    node_name: str | None = Field(None, description="The node that it ran on.")
    start_time: Time | None = Field(None, description="Time at which the pod was created.")
    running_time: Time | None = Field(None, description="Time at which the guest began to run; absent when it never did.")
    stop_time: Time | None = Field(None, description="Time at which virt-controller asked for its end; absent when nobody did.")
    end_time: Time | None = Field(None, description="Time of its end.")
    result: Result | None = Field(
        None, description="Its end: the guest powered off by itself, something failed, or it was asked to stop. Absent: not yet."
    )
    message: str | None = Field(None, description="The reason of its end, for people.")


class DomainStatus(Model):
    """The domain as libvirt sees it."""

    state: str | None = Field(None, description="libvirt's state: running, paused, shutdown, shutoff, crashed…")
    reason: str | None = Field(None, description="libvirt's reason for the state: booted, migrated, user…")
    type: str | None = Field(None, description="kvm: the processor runs the guest. qemu: it is emulated, and slower.")
    cpu_model: str | None = Field(
        None, description="The model of status.cpu, where the guest runs with it. Its migration asks of a node no more than that."
    )


class CPUStatus(Model):
    """The CPU of a machine with KVM that names none."""

    model: str = Field(
        description="The best of libvirt's models that all nodes had which the machine might run on when it was started, or "
        "host-passthrough."
    )
    features: list[str] | None = Field(
        None, description="Features beside those of the model, which all of these nodes had, too.", json_schema_extra=ATOMIC
    )
    message: str | None = Field(None, description="The reason why it is host-passthrough, for people.")


class VsockStatus(Model):
    """Sockets between the guest and its node."""

    cid: Int64 | None = Field(None, description="The guest's address on its node (AF_VSOCK), as its pod tells it: no proof of who calls.")


class InterfaceStatus(Model):
    """A network interface as it is."""

    name: str = Field(description="Its name in the spec.")
    mac: str | None = Field(None, description="The card's address.")
    ip_address: str | None = Field(None, alias="ipAddress", description="The address under which the guest can be reached.")
    ip_addresses: list[str] | None = Field(None, alias="ipAddresses", description="All of its addresses.", json_schema_extra=ATOMIC)


class ImportStatus(Model):
    """The import of a disk's image into its claim."""

    disk: str = Field(description="The disk's name in the spec.")
    phase: Literal["Pending", "Downloading", "Converting", "Retrying", "Succeeded"] | None = Field(
        None,
        description="Its state. Pending: another one comes first. Converting: it was downloaded, and is made a raw disk. Retrying: it "
        "failed, and is tried again, at most five minutes later each time.",
    )
    transferred_bytes: Int64 | None = Field(None, description="Bytes that were downloaded, of the file as it is at its source.")
    total_bytes: Int64 | None = Field(None, description="Bytes of that file; absent where the server does not say.")
    failures: Int32 | None = Field(None, description="Number of tries in vain.")
    message: str | None = Field(None, description="The reason of the last failure, for people.")


class GuestAgent(Model):
    """The QEMU guest agent."""

    connected: bool | None = Field(None, description="True if it runs in the guest, as far as its channel tells.")
    version: str | None = Field(None, description="Its version.")


class GuestOS(Model):
    """The guest's operating system."""

    id: str | None = Field(None, description="One word for it, as ID in os-release: debian, mswindows.")
    name: str | None = Field(None, description="Its name, for people.")
    version: str | None = Field(None, description="Its version.")
    kernel_release: str | None = Field(None, description="The release of its kernel.")


class GuestInterface(Model):
    """A network interface of the spec as the guest has it."""

    name: str = Field(description="Its name in the spec.")
    device: str | None = Field(None, description="The guest's name for it, such as eth0.")
    ip_addresses: list[str] | None = Field(
        None, alias="ipAddresses", description="The addresses that the guest gave it, without link-local ones.", json_schema_extra=ATOMIC
    )


class GuestStatus(Model):
    """Facts that the QEMU guest agent tells: the guest's word, which may be false. No part of us relies on it."""

    agent: GuestAgent | None = Field(None, description="The agent that said it.")
    os: GuestOS | None = Field(None, description="The guest's operating system.")
    hostname: str | None = Field(None, description="The guest's host name.")
    timezone: str | None = Field(None, description="The guest's time zone.")
    interfaces: list[GuestInterface] | None = Field(
        None, description="The network interfaces of the spec, as the guest has them.", json_schema_extra=ATOMIC
    )
    time: Time | None = Field(
        None, description="Time at which this was written: at most once a minute. What was said last stays when the agent goes."
    )


class MigrationState(Model):
    """The live migration that is going on, or the last one."""

    name: str | None = Field(None, description="The Migration's name.")
    uid: str | None = Field(None, description="The Migration's uid.")
    source_node: str | None = Field(None, description="The node it comes from.")
    source_pod: str | None = Field(None, description="The pod it comes from.")
    target_node: str | None = Field(None, description="The node it goes to.")
    target_pod: str | None = Field(None, description="The pod it goes to.")
    start_time: Time | None = Field(None, description="Time at which the guest's memory began to move.")
    end_time: Time | None = Field(None, description="Time of its end.")
    phase: str | None = Field(None, description="The Migration's phase.")


class Request(Model):
    """The last verb that turned the machine on or off."""

    action: Action = Field(description="The verb. Pause and Unpause are of an earlier release; status.pause takes their place.")
    time: Time | None = Field(None, description="The time of the call.")
    run_strategy: RunStrategy | None = Field(None, description="The run strategy then; editing it supersedes the verb.")
    generation: Int64 | None = Field(None, description="The generation of the spec then.")
    attempt: Int32 | None = Field(None, description="The attempt that the verb asks for, or is about.")


class Pause(Model):
    """Whether the guest's processors should stand still."""

    wanted: bool = Field(description="True after pause, false after unpause.")
    attempt: Int32 | None = Field(None, description="The attempt that it is about: no later one inherits a pause.")
    generation: Int64 | None = Field(None, description="The generation of the spec when the verb was called.")
    time: Time | None = Field(None, description="The time of the call.")


class Operation(Model):
    """One operation on the running guest, which is carried out at most once."""

    id: str = Field(description="Its id. Who calls a verb may give one, and call the verb again with the same id: that adds nothing.")
    number: Int32 = Field(description="Counted from 1; they are carried out in this order.")
    action: operations.Action = Field(
        description="What is done to the guest. Reset: the machine is reset at once. Resume: its processors run again that a fault stopped."
    )
    attempt: Int32 | None = Field(None, description="The attempt that it is about; it fails when that ends first.")
    time: Time | None = Field(None, description="The time of the call.")
    result: operations.Result | None = Field(None, description="Its end. Absent: not yet.")
    message: str | None = Field(None, description="The reason of a failure, for people.")
    completion_time: Time | None = Field(None, description="Time at which virt-handler learned of its end.")


class PhaseTransitionTimestamp(Model):
    """The moment at which a phase was entered."""

    phase: str = Field(description="The phase.")
    time: Time = Field(description="The moment, with microseconds.")


class RunningHardware(Model):
    """The fields of the spec that the guest runs with, where an edit changed them since it started."""

    generation: Int64 | None = Field(None, description="The last generation of the spec that had them all.")
    domain: Domain | None = Field(None, description="spec.domain of the guest.")
    domain_xml: str | None = Field(None, alias="domainXML", description="spec.domainXML of the guest.")
    access_credentials: list[AccessCredential] | None = Field(
        None, description="spec.accessCredentials of the guest.", json_schema_extra=ATOMIC
    )


class DeviceStatus(Model):
    """A device of the guest, as libvirt has it."""

    kind: Literal["disk", "interface"] = Field(description="The kind of device, in libvirt's word.")
    name: str = Field(description="Its name in the spec.")
    target: str | None = Field(None, description="libvirt's name for it: of a disk vda and the like, of an interface its tap device.")
    address: str | None = Field(None, description="Its place in the guest: the type of the bus, and the address there.")


class VirtualMachineStatus(Model):
    """The virtual machine as it is. Written by the system."""

    observed_generation: Int64 | None = Field(None, description="The generation of the spec that this tells of.")
    phase: Literal["Pending", "Scheduling", "Scheduled", "Running", "Stopping", "Stopped", "Succeeded", "Failed", "Unknown"] | None = Field(
        None,
        description="A summary. Pending: something is missing. Scheduling: its pod was created. Scheduled: the pod runs on nodeName. "
        "Running: the guest runs. Stopping: it was asked to shut down. Stopped: off as asked. Succeeded: the guest powered off by itself. "
        "Failed: see the conditions. Unknown: the node does not report.",
    )
    conditions: list[Condition] | None = Field(
        None,
        description=f"{', '.join(CONDITION_TYPES)}: each with its reason.",
        json_schema_extra=keyed_by("type"),
    )
    attempt: Int32 | None = Field(None, description="The number of the current start, part of the pod's name.")
    attempts: list[Attempt] | None = Field(
        None, description="The last ten starts and what became of them, the newest last.", json_schema_extra=keyed_by("number")
    )
    node_name: str | None = Field(None, description="The node that the machine is on.")
    pod_name: str | None = Field(None, description="The pod that the machine is in.")
    pod_uid: str | None = Field(None, alias="podUID", description="The uid of that pod: no other pod of its name is meant.")
    pod_ip: str | None = Field(None, alias="podIP", description="The address of that pod.")
    cpu: CPUStatus | None = Field(
        None, description="The CPU that was chosen at the start, with KVM, because spec.domain.cpu.model names none."
    )
    domain: DomainStatus | None = Field(None, description="The domain as libvirt sees it.")
    interfaces: list[InterfaceStatus] | None = Field(None, description="Network interfaces as they are.", json_schema_extra=ATOMIC)
    imports: list[ImportStatus] | None = Field(
        None, description="Images that are downloaded into claims before the first start, until the guest runs.", json_schema_extra=ATOMIC
    )
    guest: GuestStatus | None = Field(
        None, description="The guest's own word of itself, while its agent has said something; guestinfo, a subresource, has more."
    )
    graphics: list[Graphics] | None = Field(None, description="Displays that can be connected to.", json_schema_extra=ATOMIC)
    vsock: VsockStatus | None = Field(None, description="Sockets between the guest and its node, as they are.")
    devices: list[DeviceStatus] | None = Field(
        None, description="Disks and network interfaces that the guest has, as libvirt reports them.", json_schema_extra=ATOMIC
    )
    running: RunningHardware | None = Field(
        None,
        description="The hardware that the guest runs with, while an edit of the spec waits for the next start. Absent: it runs with the "
        "spec's.",
    )
    migration: MigrationState | None = Field(None, description="The live migration that is going on, or the last one.")
    request: Request | None = Field(None, description="The last verb that turned the machine on or off.")
    pause: Pause | None = Field(None, description="Whether the guest's processors should stand still, as pause and unpause said last.")
    operations: list[Operation] | None = Field(
        None,
        description="The last ten operations on the running guest, the newest last: those that verbs such as reset asked for.",
        json_schema_extra=keyed_by("id"),
    )
    run_strategy_generation: Int64 | None = Field(
        None, description="The generation in which the run strategy was last edited after a verb: older verbs do not count any more."
    )
    phase_transition_timestamps: list[PhaseTransitionTimestamp] | None = Field(
        None, description="Times at which the phases of this attempt were entered.", json_schema_extra=ATOMIC
    )


class VirtualMachine(Kind):
    """A machine with its own processors, memory, disks and kernel, run by libvirt and QEMU inside a pod."""

    spec: VirtualMachineSpec = Field(description="The machine as it should be; yours to write.")
    status: VirtualMachineStatus | None = Field(None, description="The machine as it is; the system writes it.")


class MigrationSelector(Model):
    """The virtual machine that is moved."""

    name: str = Field(description="The name of a VirtualMachine in the same namespace.")


class MigrationSpec(Model):
    """The machine that is moved, and the nodes it may go to. Cannot be changed."""

    selector: MigrationSelector = Field(description="The virtual machine.")
    node_selector: dict[str, str] | None = Field(
        None,
        description="Labels that the node it goes to must have, beside those that the machine asks for. kubevirt.io/hostname stands for "
        "kubernetes.io/hostname.",
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )
    priority: Int32 | None = Field(
        None,
        description="Rank among those that wait for their turn: the one with the highest number begins first, from -100 to 100. Default 0. "
        "Above 0 takes the right to patch Nodes, as cordoning one does.",
    )


class MigrationProgress(Model):
    """The progress of a live migration, of the guest's memory and of disks that are copied along: figures of virDomainGetJobStats."""

    total_bytes: Int64 | None = Field(None, description="Bytes of the memory and the disks (data_total).")
    processed_bytes: Int64 | None = Field(
        None,
        description="Bytes that were sent (data_processed). What the guest writes meanwhile is sent again, so this may exceed totalBytes.",
    )
    remaining_bytes: Int64 | None = Field(None, description="Bytes that are still to be sent (data_remaining).")
    bytes_per_second: Int64 | None = Field(None, description="Bytes that the network moves in a second (memory_bps and disk_bps).")
    dirty_bytes_per_second: Int64 | None = Field(
        None,
        description="Bytes that the guest writes to its memory in a second (memory_dirty_rate times memory_page_size); 0 before the "
        "second iteration.",
    )
    iteration: Int64 | None = Field(None, description="Number of the present pass over the guest's memory, from 1 (memory_iteration).")
    expected_remaining_seconds: Int64 | None = Field(
        None,
        description="Seconds that it still takes at these rates. Absent where the guest writes as fast as its memory is moved, and at the "
        "end.",
    )
    elapsed_milliseconds: Int64 | None = Field(None, description="Time that it has taken, or took in the end (time_elapsed).")
    downtime_milliseconds: Int64 | None = Field(
        None,
        description="At the end: how long the guest stood still until it was complete on the target (downtime). There it goes on as soon "
        "as the source is known to have ended, which is not counted.",
    )
    last_update_time: Time | None = Field(None, description="Time at which this was written, at most every five seconds.")


class MigrationAttempt(Model):
    """One attempt to move the guest that failed; the guest went on at the source."""

    number: Int32 = Field(description="Counted from 1.")
    target_node: str | None = Field(None, description="The node it should have gone to; absent when none was found yet.")
    target_pod: str | None = Field(None, description="The pod it should have gone to.")
    reason: str | None = Field(
        None,
        description=f"Why it failed, one of {', '.join(migration_attempts.REASONS)}: causes that have nothing to do with the machine, and "
        "may be gone at the next attempt.",
    )
    message: str | None = Field(None, description="The reason of its failure, for people.")
    end_time: Time | None = Field(None, description="Time at which that was noticed.")


class MigrationStatus(Model):
    """The migration as it is. Written by the system."""

    phase: Literal["Pending", "Scheduling", "PreparingTarget", "TargetReady", "Running", "Succeeded", "Failed", "Cancelled"] | None = Field(
        None,
        description="A summary. Pending: not begun. Scheduling: the target pod was created. PreparingTarget: that pod runs. TargetReady: "
        "it can receive. Running: the guest's memory moves. Succeeded: the guest runs on the target. Failed, Cancelled: it goes on at the "
        "source. The last three are final.",
    )
    conditions: list[Condition] | None = Field(None, description="Details, each with its reason.", json_schema_extra=keyed_by("type"))
    observed_generation: Int64 | None = Field(None, description="The generation of the spec that this tells of.")
    source_node: str | None = Field(None, description="The node it comes from.")
    source_pod: str | None = Field(None, description="The pod it comes from.")
    source_pod_uid: str | None = Field(None, alias="sourcePodUID", description="The uid of that pod.")
    target_node: str | None = Field(None, description="The node it goes to.")
    target_pod: str | None = Field(None, description="The pod it goes to.")
    target_pod_uid: str | None = Field(None, alias="targetPodUID", description="The uid of that pod.")
    target_pod_ips: list[str] | None = Field(
        None,
        alias="targetPodIPs",
        description="Addresses of the target pod, to which connections to the source pod are passed on once the guest has moved.",
        json_schema_extra=ATOMIC,
    )
    target_address: str | None = Field(None, description="Address at which the target's virt-handler receives, as host:port.")
    policy: str | None = Field(None, description="The MigrationPolicy that holds for it; absent: none does.")
    options: MigrationOptions | None = Field(
        None, description="Limits that it keeps: as that policy, and the cluster's defaults, said when it began."
    )
    attempt: Int32 | None = Field(
        None,
        description="The number of the present attempt, counted from 1. One that fails because a connection broke, or the target's pod "
        f"ended, is followed by another, with another target pod; there are {migration_attempts.MAX_ATTEMPTS} at most.",
    )
    attempts: list[MigrationAttempt] | None = Field(
        None, description="The attempts that failed, the newest last.", json_schema_extra=keyed_by("number")
    )
    start_time: Time | None = Field(None, description="Time at which work on it began.")
    end_time: Time | None = Field(None, description="Time of its end.")
    message: str | None = Field(None, description="The reason of its end, for people.")
    progress: MigrationProgress | None = Field(None, description="Progress of the guest's memory; absent before it moves.")
    phase_transition_timestamps: list[PhaseTransitionTimestamp] | None = Field(
        None, description="Times at which the phases were entered.", json_schema_extra=ATOMIC
    )


class Migration(Kind):
    """Moves a running virtual machine to another node without stopping it. Deleting an unfinished one cancels it."""

    spec: MigrationSpec = Field(description="The machine that is moved, and the nodes it may go to; yours to write, once.")
    status: MigrationStatus | None = Field(None, description="The migration as it is; the system writes it.")
