"""Types of our objects for mypy, which `make fields` writes from the models. Do not edit.

Import them under ``TYPE_CHECKING``: at run time objects are plain dictionaries. What is only copied into a pod is a plain dictionary here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

if TYPE_CHECKING:
    from apiserver.apis.meta.typed import ObjectMeta


class AccessCredential(TypedDict, total=False):
    """A right to log in to the guest."""

    sshPublicKey: Required[SSHPublicKey]


class AccessCredentialSource(TypedDict, total=False):
    """The source of the public keys."""

    secret: Required[SecretSource]


class Attempt(TypedDict, total=False):
    """One start of the machine, with its result."""

    number: Required[int]
    generation: int
    podName: str
    nodeName: str
    startTime: str
    runningTime: str
    stopTime: str
    endTime: str
    result: Literal["Succeeded", "Failed", "Stopped", "Suspended"]
    message: str


class BIOS(TypedDict, total=False):
    """A BIOS, the default."""

    useSerial: bool


class BlockSize(TypedDict, total=False):
    """Block sizes of a disk, as reported to the guest."""

    logical: int
    physical: int


class Bootloader(TypedDict, total=False):
    """The kind of firmware; at most one field is set."""

    bios: BIOS
    efi: EFI


class CPU(TypedDict, total=False):
    """The guest's virtual processors: sockets x cores x threads."""

    sockets: int
    cores: int
    threads: int
    maxSockets: int
    model: str
    features: list[CPUFeature]
    dedicatedCpuPlacement: bool
    isolateEmulatorThread: bool
    numa: NUMA


class CPUFeature(TypedDict, total=False):
    """One feature of the processors."""

    name: Required[str]
    policy: Literal["force", "require", "optional", "disable", "forbid"]


class CPUStatus(TypedDict, total=False):
    """The CPU of a machine with KVM and without a model in its spec."""

    model: Required[str]
    features: list[str]
    message: str


class Call(TypedDict, total=False):
    """A call of a verb with an id."""

    id: Required[str]
    verb: Required[str]


class Chassis(TypedDict, total=False):
    """The chassis in the guest's SMBIOS tables."""

    manufacturer: str
    version: str
    serial: str
    asset: str
    sku: str


class Clock(TypedDict, total=False):
    """The clock that the guest reads at its start, and its timers."""

    utc: ClockOffsetUTC
    timezone: str
    timer: Timer


class ClockOffsetUTC(TypedDict, total=False):
    """A clock that shows Coordinated Universal Time plus an offset in seconds."""

    offsetSeconds: int


class Condition(TypedDict, total=False):
    """One aspect of the current state."""

    type: Required[str]
    status: Required[Literal["True", "False", "Unknown"]]
    reason: str
    message: str
    lastTransitionTime: str
    observedGeneration: int


class ConfigMapKey(TypedDict, total=False):
    """One value of a ConfigMap in the machine's namespace."""

    name: Required[str]
    key: str


class Console(TypedDict, total=False):
    """One serial port."""

    type: Required[Literal["pty"]]


class DeviceStatus(TypedDict, total=False):
    """A device of the guest, as libvirt has it."""

    kind: Required[Literal["disk", "interface"]]
    name: Required[str]
    target: str
    address: str


class Devices(TypedDict, total=False):
    """The devices of the guest."""

    disks: list[Disk]
    filesystems: list[Filesystem]
    interfaces: list[Interface]
    graphics: list[Graphics]
    consoles: list[Console]
    video: Video
    inputs: list[Input]
    sound: Sound
    watchdog: Watchdog
    rng: Rng
    panic: Panic
    tpm: TPM
    vsock: Vsock
    blockMultiQueue: bool
    networkInterfaceMultiqueue: bool
    autoattachMemBalloon: bool
    gpus: list[GPU]
    hostDevices: list[HostDevice]
    redirectedDevices: RedirectedDevices


class Disk(TypedDict, total=False):
    """One disk or CD-ROM drive."""

    name: str
    type: Literal[
        "PersistentVolumeClaim",
        "Image",
        "EmptyDisk",
        "CloudInitNoCloud",
        "CloudInitConfigDrive",
        "Secret",
        "ConfigMap",
        "DownwardAPI",
        "ServiceAccount",
        "ISCSI",
        "NBD",
        "NFS",
        "RBD",
        "Plugin",
        "HostDisk",
    ]
    device: Literal["disk", "cdrom", "lun"]
    source: DiskSource
    target: DiskTarget
    readOnly: bool
    bootOrder: int
    shareable: bool
    serial: str
    wwn: str
    driver: DiskDriver
    blockSize: BlockSize
    ioTune: IoTune
    dedicatedIOThread: bool


class DiskCreation(TypedDict, total=False):
    """The blank disk to create in a claim without one."""

    size: Required[str]


class DiskDriver(TypedDict, total=False):
    """How QEMU reads and writes a disk: libvirt's ``<driver>``."""

    cache: Literal["none", "directsync", "writethrough", "writeback", "unsafe"]
    io: Literal["threads", "native"]
    discard: Literal["unmap", "ignore"]
    detectZeroes: Literal["off", "on", "unmap"]
    errorPolicy: Literal["stop", "report", "ignore", "enospace"]


class DiskImport(TypedDict, total=False):
    """The image to download into a claim without one."""

    http: HTTPImport
    s3: S3Import
    registry: RegistryImport
    format: Literal["raw", "qcow2"]
    checksum: str
    size: str


DiskSource = TypedDict(
    "DiskSource",
    {
        "plugin": "str",
        "options": "dict[str, str]",
        "audience": "str",
        "expirationSeconds": "int",
        "host": "str",
        "port": "int",
        "export": "str",
        "tlsSecretRef": "SecretName",
        "tlsHostname": "str",
        "monitors": "list[str]",
        "pool": "str",
        "image": "str",
        "user": "str",
        "targetPortal": "str",
        "iqn": "str",
        "lun": "int",
        "initiatorName": "str",
        "identity": "Identity",
        "secretRef": "SecretName",
        "name": "str",
        "reference": "str",
        "path": "str",
        "pullPolicy": 'Literal["Always", "IfNotPresent", "Never"]',
        "sizeLimit": "str",
        "ephemeral": "bool",
        "create": "DiskCreation",
        "import": "DiskImport",
        "size": "str",
        "volumeLabel": "str",
        "items": "list[DownwardItem]",
        "userData": "str",
        "userDataBase64": "str",
        "userDataSecretRef": "SecretKey",
        "networkData": "str",
        "networkDataBase64": "str",
        "networkDataSecretRef": "SecretKey",
        "metaData": "str",
        "metaDataBase64": "str",
        "metaDataSecretRef": "SecretKey",
    },
    total=False,
)
"""The source of a disk's content; its fields depend on the disk's type."""


class DiskTarget(TypedDict, total=False):
    """The disk as the guest sees it."""

    bus: Literal["virtio", "sata", "scsi", "usb"]


class Domain(TypedDict, total=False):
    """The machine itself, in libvirt's terms."""

    cpu: CPU
    memory: Memory
    resources: Resources
    machine: Machine
    ioThreads: IOThreads
    clock: Clock
    features: Features
    firmware: Firmware
    chassis: Chassis
    devices: Devices


class DomainStatus(TypedDict, total=False):
    """The domain as libvirt sees it."""

    state: str
    reason: str
    type: str
    cpuModel: str


class DownwardItem(TypedDict, total=False):
    """One file of a disk of type DownwardAPI."""

    path: Required[str]
    fieldRef: FieldReference
    resourceFieldRef: ResourceReference


class EFI(TypedDict, total=False):
    """UEFI firmware."""

    secureBoot: bool
    persistent: bool


class FeatureAPIC(TypedDict, total=False):
    """The interrupt controllers of the processors."""

    endOfInterrupt: bool


class FeatureHyperv(TypedDict, total=False):
    """Enlightenments, which make a Windows guest faster on KVM, as on Hyper-V."""

    relaxed: FeatureState
    vapic: FeatureState
    spinlocks: FeatureSpinlocks
    vpindex: FeatureState
    runtime: FeatureState
    synic: FeatureState
    synictimer: FeatureState
    reset: FeatureState
    vendorid: FeatureVendorID
    frequencies: FeatureState
    reenlightenment: FeatureState
    tlbflush: FeatureState
    ipi: FeatureState
    evmcs: FeatureState


class FeatureKVM(TypedDict, total=False):
    """KVM, as the guest sees it."""

    hidden: bool


class FeatureSpinlocks(TypedDict, total=False):
    """Spin locks that the guest reports to the hypervisor."""

    enabled: bool
    spinlocks: int


class FeatureState(TypedDict, total=False):
    """A feature that is on or off."""

    enabled: bool


class FeatureVendorID(TypedDict, total=False):
    """The name of the hypervisor for the guest."""

    enabled: bool
    vendorid: str


class Features(TypedDict, total=False):
    """Features of the hypervisor and the machine."""

    acpi: FeatureState
    apic: FeatureAPIC
    hyperv: FeatureHyperv
    kvm: FeatureKVM
    pvspinlock: FeatureState
    smm: FeatureState


class FieldReference(TypedDict, total=False):
    """A field of the machine."""

    fieldPath: Required[str]


class Filesystem(TypedDict, total=False):
    """A file system that the guest shares with others, by virtiofs."""

    name: Required[str]
    type: Required[Literal["PersistentVolumeClaim", "ConfigMap", "Secret"]]
    source: Required[FilesystemSource]
    readOnly: bool


class FilesystemSource(TypedDict, total=False):
    """The source of a file system's content."""

    name: Required[str]


class Firmware(TypedDict, total=False):
    """Firmware of the machine, and direct boot of a kernel."""

    uuid: str
    serial: str
    system: System
    bootloader: Bootloader
    persistentState: PersistentState
    kernelBoot: KernelBoot


class GPU(TypedDict, total=False):
    """A graphics processor of the node, or a part of one, assigned to the guest."""

    name: Required[str]
    deviceName: Required[str]


class Graphics(TypedDict, total=False):
    """One graphical display."""

    type: Required[Literal["vnc", "spice"]]


class GuestAgent(TypedDict, total=False):
    """The QEMU guest agent."""

    connected: bool
    version: str


class GuestAgentPropagation(TypedDict, total=False):
    """Sets the keys with the guest agent while the guest runs."""

    users: Required[list[str]]


class GuestInterface(TypedDict, total=False):
    """A network interface of the spec as the guest sees it."""

    name: Required[str]
    device: str
    ipAddresses: list[str]


class GuestOS(TypedDict, total=False):
    """The guest's operating system."""

    id: str
    name: str
    version: str
    kernelRelease: str


class GuestStatus(TypedDict, total=False):
    """Facts from the QEMU guest agent, which may be false."""

    agent: GuestAgent
    os: GuestOS
    hostname: str
    timezone: str
    interfaces: list[GuestInterface]
    time: str


class HPETTimer(TypedDict, total=False):
    """The high precision event timer."""

    present: bool


class HTTPGetAction(TypedDict, total=False):
    """An HTTP request."""

    port: Required[int]
    path: str
    scheme: Literal["HTTP"]
    httpHeaders: list[HTTPHeader]


class HTTPHeader(TypedDict, total=False):
    """A header field of the request."""

    name: Required[str]
    value: Required[str]


class HTTPImport(TypedDict, total=False):
    """An image on a web server."""

    url: Required[str]
    secretRef: SecretReference
    caConfigMapRef: ConfigMapKey


class HostDevice(TypedDict, total=False):
    """A PCI or mediated device of the node, assigned to the guest."""

    name: Required[str]
    deviceName: Required[str]


class Hugepages(TypedDict, total=False):
    """Huge pages of the node for the guest's memory."""

    pageSize: Required[Literal["2Mi", "1Gi"]]


class HyperVTimer(TypedDict, total=False):
    """Hyper-V's reference time, preferred by Windows guests."""

    present: bool


class IOThreads(TypedDict, total=False):
    """Threads of QEMU that serve disks of bus virtio instead of its main thread."""

    count: int


class Identity(TypedDict, total=False):
    """The user for requests to an NFS server."""

    user: Required[int]
    group: Required[int]


class ImportStatus(TypedDict, total=False):
    """The import of a disk's image into its claim."""

    disk: Required[str]
    phase: Literal["Pending", "Downloading", "Converting", "Retrying", "Succeeded"]
    transferredBytes: int
    totalBytes: int
    failures: int
    message: str


class Input(TypedDict, total=False):
    """One keyboard or pointer, in addition to the PS/2 ones of every PC."""

    type: Required[Literal["tablet", "keyboard", "mouse"]]
    bus: Literal["usb", "virtio"]


class Interface(TypedDict, total=False):
    """One network interface of the guest."""

    name: Required[str]
    type: Literal["masquerade", "bridge", "macvtap", "sriov", "plugin", "passt"]
    network: str
    deviceName: str
    plugin: str
    options: dict[str, str]
    model: Literal["virtio", "e1000", "e1000e", "rtl8139"]
    mac: str
    ports: list[Port]
    state: Literal["up", "down"]


class InterfaceStatus(TypedDict, total=False):
    """The state of a network interface."""

    name: Required[str]
    mac: str
    ipAddress: str
    ipAddresses: list[str]


class IoTune(TypedDict, total=False):
    """Limits of a guest's reads and writes of a disk: libvirt's ``<iotune>``."""

    totalBytesSec: str
    readBytesSec: str
    writeBytesSec: str
    totalIopsSec: int
    readIopsSec: int
    writeIopsSec: int
    totalBytesSecMax: str
    readBytesSecMax: str
    writeBytesSecMax: str
    totalIopsSecMax: int
    readIopsSecMax: int
    writeIopsSecMax: int


class KVMTimer(TypedDict, total=False):
    """KVM's own clock, preferred by Linux guests."""

    present: bool


class KernelBoot(TypedDict, total=False):
    """Starts a kernel directly, without a boot loader."""

    container: Required[KernelBootContainer]
    kernelArgs: str


class KernelBootContainer(TypedDict, total=False):
    """A container image with a kernel."""

    image: Required[str]
    imagePullPolicy: Literal["Always", "IfNotPresent", "Never"]
    kernelPath: Required[str]
    initrdPath: str


class Machine(TypedDict, total=False):
    """The emulated machine."""

    type: str


class ManagedSave(TypedDict, total=False):
    """Storage for the guest's memory while the machine is suspended."""

    claimName: Required[str]


class ManagedSaveStatus(TypedDict, total=False):
    """The image from which the guest resumes at the next start."""

    id: Required[str]
    claimName: Required[str]
    file: Required[str]
    digest: Required[str]
    sizeBytes: Required[int]
    attempt: int
    type: Literal["kvm", "qemu"]
    machineType: str
    time: str


class Memory(TypedDict, total=False):
    """The guest's memory."""

    guest: str
    maxGuest: str
    hugepages: Hugepages


class Migration(TypedDict, total=False):
    """Moves a running virtual machine to another node without stopping it."""

    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[MigrationSpec]
    status: MigrationStatus


class MigrationAttempt(TypedDict, total=False):
    """A failed attempt to move the guest; the guest continued on the source."""

    number: Required[int]
    targetNode: str
    targetPod: str
    reason: str
    message: str
    endTime: str


class MigrationOptions(TypedDict, total=False):
    """Limits of one migration, from its policy and the cluster's defaults when it began."""

    bandwidth: str
    maxDowntimeMilliseconds: int
    parallelConnections: int
    allowAutoConverge: bool
    allowPause: bool
    completionTimeoutSeconds: int


class MigrationPolicy(TypedDict, total=False):
    """Limits for live migrations of selected machines: bandwidth, downtime, time-out, and the action after the time-out."""

    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[MigrationPolicySpec]


class MigrationPolicySelectors(TypedDict, total=False):
    """The machines of a policy."""

    namespaceSelector: ObjectSelector
    virtualMachineSelector: ObjectSelector


class MigrationPolicySpec(TypedDict, total=False):
    """Limits for migrations of the selected machines."""

    selectors: MigrationPolicySelectors
    bandwidth: str
    maxDowntimeMilliseconds: int
    parallelConnections: int
    allowAutoConverge: bool
    allowPostCopy: bool
    allowPause: bool
    completionTimeoutPerGiB: int


class MigrationProgress(TypedDict, total=False):
    """Progress of a live migration, of memory and of copied disks: figures of virDomainGetJobStats."""

    totalBytes: int
    processedBytes: int
    remainingBytes: int
    bytesPerSecond: int
    dirtyBytesPerSecond: int
    iteration: int
    expectedRemainingSeconds: int
    elapsedMilliseconds: int
    downtimeMilliseconds: int
    lastUpdateTime: str


class MigrationSelector(TypedDict, total=False):
    """The virtual machine to migrate."""

    name: Required[str]


class MigrationSpec(TypedDict, total=False):
    """Desired state of a migration: the machine, and constraints on its target node."""

    selector: Required[MigrationSelector]
    nodeSelector: dict[str, str]
    priority: int


class MigrationState(TypedDict, total=False):
    """The current or last live migration."""

    name: str
    uid: str
    sourceNode: str
    sourcePod: str
    targetNode: str
    targetPod: str
    startTime: str
    endTime: str
    phase: str


class MigrationStatus(TypedDict, total=False):
    """The state of the migration, written by the system."""

    phase: Literal["Pending", "Scheduling", "PreparingTarget", "TargetReady", "Running", "Succeeded", "Failed", "Cancelled"]
    conditions: list[Condition]
    observedGeneration: int
    sourceNode: str
    sourcePod: str
    sourcePodUID: str
    targetNode: str
    targetPod: str
    targetPodUID: str
    targetPodIPs: list[str]
    targetAddress: str
    policy: str
    options: MigrationOptions
    attempt: int
    attempts: list[MigrationAttempt]
    startTime: str
    endTime: str
    message: str
    progress: MigrationProgress
    phaseTransitionTimestamps: list[PhaseTransitionTimestamp]


class NUMA(TypedDict, total=False):
    """The guest's NUMA topology."""

    cells: list[NUMACell]
    guestMappingPassthrough: dict[str, Any]


class NUMACell(TypedDict, total=False):
    """A node of the guest's NUMA topology: processors and their local memory."""

    cpus: Required[str]
    memory: Required[str]


class ObjectSelector(TypedDict, total=False):
    """Conditions on labels, which all must hold."""

    matchLabels: dict[str, str]
    matchExpressions: list[ObjectSelectorRequirement]


class ObjectSelectorRequirement(TypedDict, total=False):
    """A condition on one label."""

    key: Required[str]
    operator: Required[Literal["In", "NotIn", "Exists", "DoesNotExist"]]
    values: list[str]


class Operation(TypedDict, total=False):
    """One operation on the running guest, executed at most once."""

    id: Required[str]
    number: Required[int]
    action: Required[Literal["Reset", "Resume", "SoftReboot", "InjectNMI", "SendKey", "Suspend"]]
    parameters: OperationParameters
    attempt: int
    time: str
    percent: int
    result: Literal["Succeeded", "Failed"]
    message: str
    completionTime: str


class OperationParameters(TypedDict, total=False):
    """Parameters of an operation; each action has its own."""

    keys: list[str]
    holdMilliseconds: int


class PITTimer(TypedDict, total=False):
    """The programmable interval timer."""

    tickPolicy: Literal["delay", "discard"]


class Panic(TypedDict, total=False):
    """The device through which the guest's kernel reports a panic, which ends the attempt."""

    model: Literal["isa", "none"]


class Pause(TypedDict, total=False):
    """The pause that users requested for the guest."""

    wanted: Required[bool]
    attempt: int
    generation: int
    time: str


class PersistentState(TypedDict, total=False):
    """Storage for the state of UEFI and TPM that is kept while the machine is off."""

    claimName: Required[str]


class PhaseTransitionTimestamp(TypedDict, total=False):
    """The time at which a phase was entered."""

    phase: Required[str]
    time: Required[str]


class Port(TypedDict, total=False):
    """A reachable port of the guest."""

    name: str
    port: Required[int]
    protocol: Literal["TCP", "UDP"]


class Probe(TypedDict, total=False):
    """A periodic check of the running guest: one of httpGet, tcpSocket and guestAgentPing."""

    httpGet: HTTPGetAction
    tcpSocket: TCPSocketAction
    guestAgentPing: dict[str, Any]
    initialDelaySeconds: int
    periodSeconds: int
    timeoutSeconds: int
    successThreshold: int
    failureThreshold: int


class PropagationMethod(TypedDict, total=False):
    """How public keys get into the guest; exactly one field is set."""

    noCloud: dict[str, Any]
    configDrive: dict[str, Any]
    qemuGuestAgent: GuestAgentPropagation


class RTCTimer(TypedDict, total=False):
    """The real-time clock."""

    tickPolicy: Literal["delay", "catchup"]
    track: Literal["guest", "wall"]


class RedirectedDevices(TypedDict, total=False):
    """Slots for USB devices that clients connect through the subresource usbredir."""

    slots: int
    filter: list[RedirectionRule]


RedirectionRule = TypedDict("RedirectionRule", {"class": "str", "vendor": "str", "product": "str", "allow": "bool"}, total=False)
"""Selects USB devices that match all given fields."""


class RegistryImport(TypedDict, total=False):
    """An image in a container registry: a file below disk/ of a container image, as in container disks."""

    reference: Required[str]
    secretRef: SecretReference
    caConfigMapRef: ConfigMapKey


class Request(TypedDict, total=False):
    """The last verb that turned the machine on or off."""

    action: Required[Literal["Start", "Stop", "Restart", "Pause", "Unpause"]]
    time: str
    runStrategy: Literal["Always", "RerunOnFailure", "Once", "Manual", "Halted"]
    generation: int
    attempt: int
    nodeSelector: dict[str, str]
    gracePeriodSeconds: int


class Rerun(TypedDict, total=False):
    """Restarts after a failed start."""

    limit: int
    startTimeoutSeconds: int


class ResourceLimits(TypedDict, total=False):
    """Maximum resources of a node that the machine may use."""

    cpu: str
    memory: str


class ResourceReference(TypedDict, total=False):
    """A resource of the machine's container, as for any container."""

    resource: Required[
        Literal["limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage"]
    ]
    divisor: str


class ResourceRequests(TypedDict, total=False):
    """Resources of a node reserved for the machine."""

    cpu: str
    memory: str


class Resources(TypedDict, total=False):
    """Requests and limits of the machine's pod, as for a container."""

    requests: ResourceRequests
    limits: ResourceLimits


class Rng(TypedDict, total=False):
    """The source of random numbers, from the node's kernel."""

    model: Literal["virtio", "none"]
    rate: RngRate


class RngRate(TypedDict, total=False):
    """The maximum rate at which the guest may read random numbers."""

    bytes: Required[int]
    period: int


class RunningHardware(TypedDict, total=False):
    """The fields of the spec that the guest runs with, where an edit changed them since it started."""

    generation: int
    domain: Domain
    domainXML: str
    accessCredentials: list[AccessCredential]
    managedSave: ManagedSave


class S3Import(TypedDict, total=False):
    """An image in an object store compatible with Amazon S3."""

    endpoint: Required[str]
    bucket: Required[str]
    key: Required[str]
    region: str
    secretRef: SecretReference
    caConfigMapRef: ConfigMapKey


class SSHPublicKey(TypedDict, total=False):
    """Public keys, and how they get into the guest."""

    source: Required[AccessCredentialSource]
    propagationMethod: Required[PropagationMethod]


class SecretKey(TypedDict, total=False):
    """One value of a Secret in the machine's namespace."""

    name: Required[str]
    key: str


class SecretName(TypedDict, total=False):
    """A Secret in the machine's namespace."""

    name: Required[str]


class SecretReference(TypedDict, total=False):
    """A Secret in the machine's namespace."""

    name: Required[str]


class SecretSource(TypedDict, total=False):
    """A Secret with lists of public keys as values."""

    secretName: Required[str]


class Sound(TypedDict, total=False):
    """A sound card, for guests and programs that need one."""

    model: Literal["ich9", "ac97"]


class System(TypedDict, total=False):
    """The machine's data in the guest's SMBIOS tables."""

    manufacturer: str
    product: str
    version: str
    sku: str
    family: str


class TCPSocketAction(TypedDict, total=False):
    """A connection, closed once the guest accepted it."""

    port: Required[int]


class TPM(TypedDict, total=False):
    """An emulated Trusted Platform Module, version 2.0."""

    persistent: bool


class Timer(TypedDict, total=False):
    """The timers of the machine."""

    hpet: HPETTimer
    hyperv: HyperVTimer
    kvm: KVMTimer
    pit: PITTimer
    rtc: RTCTimer


class Video(TypedDict, total=False):
    """The graphics card of the displays."""

    type: Literal["vga", "bochs", "virtio", "none"]
    vram: str
    heads: int


class VirtualMachine(TypedDict, total=False):
    """A machine with its own processors, memory, disks and kernel, run by libvirt and QEMU inside a pod."""

    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[VirtualMachineSpec]
    status: VirtualMachineStatus


class VirtualMachineSpec(TypedDict, total=False):
    """The desired virtual machine."""

    runStrategy: Literal["Always", "RerunOnFailure", "Once", "Manual", "Halted"]
    rerun: Rerun
    terminationGracePeriodSeconds: int
    evictionStrategy: Literal["LiveMigrate", "LiveMigrateIfPossible", "Shutdown", "External"]
    nodeSelector: dict[str, str]
    affinity: dict[str, Any]
    tolerations: list[dict[str, Any]]
    topologySpreadConstraints: list[dict[str, Any]]
    priorityClassName: str
    schedulerName: str
    nodeName: str
    accessCredentials: list[AccessCredential]
    managedSave: ManagedSave
    readinessProbe: Probe
    livenessProbe: Probe
    domain: Domain
    domainXML: str


class VirtualMachineStatus(TypedDict, total=False):
    """The actual virtual machine, written by the system."""

    observedGeneration: int
    phase: Literal["Pending", "Scheduling", "Scheduled", "Running", "Stopping", "Stopped", "Succeeded", "Failed", "Suspended", "Unknown"]
    conditions: list[Condition]
    attempt: int
    attempts: list[Attempt]
    nodeName: str
    podName: str
    podUID: str
    podIP: str
    cpu: CPUStatus
    domain: DomainStatus
    interfaces: list[InterfaceStatus]
    imports: list[ImportStatus]
    guest: GuestStatus
    graphics: list[Graphics]
    vsock: VsockStatus
    devices: list[DeviceStatus]
    running: RunningHardware
    managedSave: ManagedSaveStatus
    migration: MigrationState
    request: Request
    calls: list[Call]
    pause: Pause
    operations: list[Operation]
    runStrategyGeneration: int
    phaseTransitionTimestamps: list[PhaseTransitionTimestamp]


class Vsock(TypedDict, total=False):
    """AF_VSOCK sockets between the guest and its node."""

    model: Literal["virtio"]


class VsockStatus(TypedDict, total=False):
    """Sockets between the guest and its node."""

    cid: int


class Watchdog(TypedDict, total=False):
    """A timer that the guest must reset regularly, and the action if it does not."""

    model: Literal["i6300esb"]
    action: Literal["reset", "shutdown", "poweroff", "pause", "none"]
