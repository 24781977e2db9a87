"""Types of our objects for mypy. `make fields` writes them from the models; do not edit.

Import them under ``TYPE_CHECKING``. What is only copied into a pod is a plain dictionary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

if TYPE_CHECKING:
    from apiserver.apis.meta.typed import ObjectMeta


class AccessCredential(TypedDict, total=False):
    sshPublicKey: Required[SSHPublicKey]


class AccessCredentialSource(TypedDict, total=False):
    secret: Required[SecretSource]


class Attempt(TypedDict, total=False):
    number: Required[int]
    generation: int
    podName: str
    nodeName: str
    startNodeName: str
    startTime: str
    runningTime: str
    stopTime: str
    endTime: str
    result: Literal["Succeeded", "Failed", "Stopped", "Suspended"]
    message: str


class BIOS(TypedDict, total=False):
    useSerial: bool


class BlockSize(TypedDict, total=False):
    logical: int
    physical: int


class Bootloader(TypedDict, total=False):
    bios: BIOS
    efi: EFI


class CPU(TypedDict, total=False):
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
    name: Required[str]
    policy: Literal["force", "require", "optional", "disable", "forbid"]


class CPUStatus(TypedDict, total=False):
    model: Required[str]
    features: list[str]
    message: str


class Call(TypedDict, total=False):
    id: Required[str]
    verb: Required[str]


class Change(TypedDict, total=False):
    path: Required[str]
    state: Required[Literal["Pending", "Failed", "Applied"]]
    message: str
    time: str


class Chassis(TypedDict, total=False):
    manufacturer: str
    version: str
    serial: str
    asset: str
    sku: str


class ClaimMetadata(TypedDict, total=False):
    name: Required[str]
    labels: dict[str, str]
    annotations: dict[str, str]
    creationTimestamp: str


class ClaimResources(TypedDict, total=False):
    requests: Required[dict[str, str]]


class ClaimRetentionPolicy(TypedDict, total=False):
    whenDeleted: Literal["Retain", "Delete"]
    whenScaled: Literal["Retain", "Delete"]


class ClaimSource(TypedDict, total=False):
    apiGroup: str
    kind: Required[str]
    name: Required[str]


class ClaimSpec(TypedDict, total=False):
    accessModes: Required[list[Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]]]
    resources: Required[ClaimResources]
    storageClassName: str
    volumeMode: Literal["Filesystem", "Block"]
    dataSource: ClaimSource


class Clock(TypedDict, total=False):
    utc: ClockOffsetUTC
    timezone: str
    timer: Timer


class ClockOffsetUTC(TypedDict, total=False):
    offsetSeconds: int


class Condition(TypedDict, total=False):
    type: Required[str]
    status: Required[Literal["True", "False", "Unknown"]]
    reason: str
    message: str
    lastTransitionTime: str
    observedGeneration: int


class ConfigMapKey(TypedDict, total=False):
    name: Required[str]
    key: str


class Console(TypedDict, total=False):
    type: Required[Literal["pty"]]


class DeviceStatus(TypedDict, total=False):
    kind: Required[Literal["disk", "interface"]]
    name: Required[str]
    target: str
    address: str
    empty: bool


class Devices(TypedDict, total=False):
    disks: list[Disk]
    filesystems: list[Filesystem]
    interfaces: list[Interface]
    graphics: list[Graphics]
    consoles: list[Console]
    logSerialConsole: bool
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
    size: Required[str]


class DiskDriver(TypedDict, total=False):
    cache: Literal["none", "directsync", "writethrough", "writeback", "unsafe"]
    io: Literal["threads", "native"]
    discard: Literal["unmap", "ignore"]
    detectZeroes: Literal["off", "on", "unmap"]
    errorPolicy: Literal["stop", "report", "ignore", "enospace"]


class DiskImport(TypedDict, total=False):
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


class DiskTarget(TypedDict, total=False):
    bus: Literal["virtio", "sata", "scsi", "usb"]


class Domain(TypedDict, total=False):
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
    state: str
    reason: str
    type: str
    cpuModel: str
    liveChanges: list[str]


class DownwardItem(TypedDict, total=False):
    path: Required[str]
    fieldRef: FieldReference
    resourceFieldRef: ResourceReference


class EFI(TypedDict, total=False):
    secureBoot: bool
    persistent: bool


class ExecAction(TypedDict, total=False):
    command: Required[list[str]]


class FeatureAPIC(TypedDict, total=False):
    endOfInterrupt: bool


class FeatureHyperv(TypedDict, total=False):
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
    hidden: bool


class FeatureSpinlocks(TypedDict, total=False):
    enabled: bool
    spinlocks: int


class FeatureState(TypedDict, total=False):
    enabled: bool


class FeatureVendorID(TypedDict, total=False):
    enabled: bool
    vendorid: str


class Features(TypedDict, total=False):
    acpi: FeatureState
    apic: FeatureAPIC
    hyperv: FeatureHyperv
    kvm: FeatureKVM
    pvspinlock: FeatureState
    smm: FeatureState


class FieldReference(TypedDict, total=False):
    fieldPath: Required[str]


class Filesystem(TypedDict, total=False):
    name: Required[str]
    type: Required[Literal["PersistentVolumeClaim", "ConfigMap", "Secret"]]
    source: Required[FilesystemSource]
    readOnly: bool


class FilesystemSource(TypedDict, total=False):
    name: Required[str]


class Firmware(TypedDict, total=False):
    uuid: str
    serial: str
    system: System
    bootloader: Bootloader
    persistentState: PersistentState
    kernelBoot: KernelBoot


class GPU(TypedDict, total=False):
    name: Required[str]
    deviceName: Required[str]


class Graphics(TypedDict, total=False):
    type: Required[Literal["vnc", "spice"]]


class GuestAgent(TypedDict, total=False):
    connected: bool
    version: str


class GuestAgentPropagation(TypedDict, total=False):
    users: Required[list[str]]


class GuestInterface(TypedDict, total=False):
    name: Required[str]
    device: str
    ipAddresses: list[str]


class GuestOS(TypedDict, total=False):
    id: str
    name: str
    version: str
    kernelRelease: str


class GuestStatus(TypedDict, total=False):
    agent: GuestAgent
    os: GuestOS
    hostname: str
    timezone: str
    interfaces: list[GuestInterface]
    time: str


class HPETTimer(TypedDict, total=False):
    present: bool


class HTTPGetAction(TypedDict, total=False):
    port: Required[int]
    path: str
    scheme: Literal["HTTP"]
    httpHeaders: list[HTTPHeader]


class HTTPHeader(TypedDict, total=False):
    name: Required[str]
    value: Required[str]


class HTTPImport(TypedDict, total=False):
    url: Required[str]
    secretRef: SecretReference
    caConfigMapRef: ConfigMapKey


class HostDevice(TypedDict, total=False):
    name: Required[str]
    deviceName: Required[str]


class HotplugVolumeStatus(TypedDict, total=False):
    attachPodName: str
    attachPodUID: str


class Hugepages(TypedDict, total=False):
    pageSize: Required[Literal["2Mi", "1Gi"]]


class HyperVTimer(TypedDict, total=False):
    present: bool


class IOThreads(TypedDict, total=False):
    count: int


class Identity(TypedDict, total=False):
    user: Required[int]
    group: Required[int]


class ImportStatus(TypedDict, total=False):
    disk: Required[str]
    phase: Literal["Pending", "Downloading", "Converting", "Retrying", "Succeeded"]
    transferredBytes: int
    totalBytes: int
    failures: int
    message: str


class Input(TypedDict, total=False):
    type: Required[Literal["tablet", "keyboard", "mouse"]]
    bus: Literal["usb", "virtio"]


class Interface(TypedDict, total=False):
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
    name: Required[str]
    mac: str
    ipAddress: str
    ipAddresses: list[str]


class IoTune(TypedDict, total=False):
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
    present: bool


class KernelBoot(TypedDict, total=False):
    container: Required[KernelBootContainer]
    kernelArgs: str


class KernelBootContainer(TypedDict, total=False):
    image: Required[str]
    imagePullPolicy: Literal["Always", "IfNotPresent", "Never"]
    kernelPath: Required[str]
    initrdPath: str


class Lifecycle(TypedDict, total=False):
    preStop: LifecycleHandler


class LifecycleHandler(TypedDict, total=False):
    exec: ExecAction


class Machine(TypedDict, total=False):
    type: str


class ManagedSave(TypedDict, total=False):
    claimName: str
    nodeDisk: dict[str, Any]


class ManagedSaveStatus(TypedDict, total=False):
    id: Required[str]
    claimName: str
    file: Required[str]
    digest: Required[str]
    sizeBytes: Required[int]
    attempt: int
    type: Literal["kvm", "qemu"]
    machineType: str
    nodeName: str
    time: str


class Memory(TypedDict, total=False):
    guest: str
    maxGuest: str
    hugepages: Hugepages


class Migration(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[MigrationSpec]
    status: MigrationStatus


class MigrationAttempt(TypedDict, total=False):
    number: Required[int]
    targetNode: str
    targetPod: str
    reason: str
    message: str
    endTime: str


class MigrationOptions(TypedDict, total=False):
    bandwidth: str
    maxDowntimeMilliseconds: int
    parallelConnections: int
    allowAutoConverge: bool
    allowPause: bool
    completionTimeoutSeconds: int


class MigrationPolicy(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[MigrationPolicySpec]


class MigrationPolicySelectors(TypedDict, total=False):
    namespaceSelector: ObjectSelector
    virtualMachineSelector: ObjectSelector


class MigrationPolicySpec(TypedDict, total=False):
    selectors: MigrationPolicySelectors
    bandwidth: str
    maxDowntimeMilliseconds: int
    parallelConnections: int
    allowAutoConverge: bool
    allowPostCopy: bool
    allowPause: bool
    completionTimeoutPerGiB: int


class MigrationProgress(TypedDict, total=False):
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
    name: Required[str]


class MigrationSpec(TypedDict, total=False):
    selector: Required[MigrationSelector]
    nodeSelector: dict[str, str]
    priority: int


class MigrationState(TypedDict, total=False):
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
    cells: list[NUMACell]
    guestMappingPassthrough: dict[str, Any]


class NUMACell(TypedDict, total=False):
    cpus: Required[str]
    memory: Required[str]


class ObjectSelector(TypedDict, total=False):
    matchLabels: dict[str, str]
    matchExpressions: list[ObjectSelectorRequirement]


class ObjectSelectorRequirement(TypedDict, total=False):
    key: Required[str]
    operator: Required[Literal["In", "NotIn", "Exists", "DoesNotExist"]]
    values: list[str]


class Operation(TypedDict, total=False):
    id: Required[str]
    number: Required[int]
    action: Required[Literal["Reset", "Resume", "SoftReboot", "InjectNMI", "SendKey", "Suspend", "Freeze", "Thaw"]]
    parameters: OperationParameters
    attempt: int
    time: str
    percent: int
    result: Literal["Succeeded", "Failed"]
    message: str
    completionTime: str


class OperationParameters(TypedDict, total=False):
    keys: list[str]
    holdMilliseconds: int
    unfreezeTimeoutSeconds: int
    nodeDisk: bool


class Ordinals(TypedDict, total=False):
    start: int


class PITTimer(TypedDict, total=False):
    tickPolicy: Literal["delay", "discard"]


class Panic(TypedDict, total=False):
    model: Literal["isa", "none"]


class Pause(TypedDict, total=False):
    wanted: Required[bool]
    attempt: int
    generation: int
    time: str


class PersistentState(TypedDict, total=False):
    claimName: Required[str]


class PhaseTransitionTimestamp(TypedDict, total=False):
    phase: Required[str]
    time: Required[str]


class PodResize(TypedDict, total=False):
    guestMemoryBytes: int
    reason: str
    message: str


class Port(TypedDict, total=False):
    name: str
    port: Required[int]
    protocol: Literal["TCP", "UDP"]


class Probe(TypedDict, total=False):
    httpGet: HTTPGetAction
    tcpSocket: TCPSocketAction
    exec: ExecAction
    guestAgentPing: dict[str, Any]
    initialDelaySeconds: int
    periodSeconds: int
    timeoutSeconds: int
    successThreshold: int
    failureThreshold: int


class PropagationMethod(TypedDict, total=False):
    noCloud: dict[str, Any]
    configDrive: dict[str, Any]
    qemuGuestAgent: GuestAgentPropagation


class RTCTimer(TypedDict, total=False):
    tickPolicy: Literal["delay", "catchup"]
    track: Literal["guest", "wall"]


class RedirectedDevices(TypedDict, total=False):
    slots: int
    filter: list[RedirectionRule]


RedirectionRule = TypedDict("RedirectionRule", {"class": "str", "vendor": "str", "product": "str", "allow": "bool"}, total=False)


class RegistryImport(TypedDict, total=False):
    reference: Required[str]
    secretRef: SecretReference
    caConfigMapRef: ConfigMapKey


class Request(TypedDict, total=False):
    action: Required[Literal["Start", "Stop", "Restart", "Pause", "Unpause"]]
    time: str
    runStrategy: Literal["Always", "RerunOnFailure", "Once", "Manual", "Halted"]
    generation: int
    attempt: int
    nodeSelector: dict[str, str]
    gracePeriodSeconds: int


class Rerun(TypedDict, total=False):
    limit: int
    startTimeoutSeconds: int


class ResourceLimits(TypedDict, total=False):
    cpu: str
    memory: str


class ResourceReference(TypedDict, total=False):
    resource: Required[
        Literal["limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage"]
    ]
    divisor: str


class ResourceRequests(TypedDict, total=False):
    cpu: str
    memory: str


class Resources(TypedDict, total=False):
    requests: ResourceRequests
    limits: ResourceLimits


class Revision(TypedDict, total=False):
    name: Required[str]
    revision: Required[int]
    template: Required[VirtualMachineTemplate]
    changeCause: str


class Rng(TypedDict, total=False):
    model: Literal["virtio", "none"]
    rate: RngRate


class RngRate(TypedDict, total=False):
    bytes: Required[int]
    period: int


class RollingUpdate(TypedDict, total=False):
    maxUnavailable: int | str
    partition: int


class RunningHardware(TypedDict, total=False):
    generation: int
    domain: Domain
    domainXML: str
    accessCredentials: list[AccessCredential]
    managedSave: ManagedSave
    lifecycle: Lifecycle
    reservedClaims: list[str]


class S3Import(TypedDict, total=False):
    endpoint: Required[str]
    bucket: Required[str]
    key: Required[str]
    region: str
    secretRef: SecretReference
    caConfigMapRef: ConfigMapKey


class SSHPublicKey(TypedDict, total=False):
    source: Required[AccessCredentialSource]
    propagationMethod: Required[PropagationMethod]


class SecretKey(TypedDict, total=False):
    name: Required[str]
    key: str


class SecretName(TypedDict, total=False):
    name: Required[str]


class SecretReference(TypedDict, total=False):
    name: Required[str]


class SecretSource(TypedDict, total=False):
    secretName: Required[str]


class Sound(TypedDict, total=False):
    model: Literal["ich9", "ac97"]


class System(TypedDict, total=False):
    manufacturer: str
    product: str
    version: str
    sku: str
    family: str


class TCPSocketAction(TypedDict, total=False):
    port: Required[int]


class TPM(TypedDict, total=False):
    persistent: bool


class TemplateMetadata(TypedDict, total=False):
    labels: dict[str, str]
    annotations: dict[str, str]
    creationTimestamp: str


class Timer(TypedDict, total=False):
    hpet: HPETTimer
    hyperv: HyperVTimer
    kvm: KVMTimer
    pit: PITTimer
    rtc: RTCTimer


class UpdateStrategy(TypedDict, total=False):
    type: Literal["RollingUpdate", "OnDelete"]
    rollingUpdate: RollingUpdate


class Video(TypedDict, total=False):
    type: Literal["vga", "bochs", "virtio", "none"]
    vram: str
    heads: int


class VirtualMachine(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[VirtualMachineSpec]
    status: VirtualMachineStatus


class VirtualMachineReplicaSet(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[VirtualMachineReplicaSetSpec]
    status: VirtualMachineReplicaSetStatus


class VirtualMachineReplicaSetSpec(TypedDict, total=False):
    replicas: int
    minReadySeconds: int
    selector: Required[ObjectSelector]
    template: Required[VirtualMachineTemplate]
    ordinals: Ordinals
    volumeClaimTemplates: list[VolumeClaimTemplate]
    persistentVolumeClaimRetentionPolicy: ClaimRetentionPolicy
    updateStrategy: UpdateStrategy
    revisionHistoryLimit: int
    paused: bool


class VirtualMachineReplicaSetStatus(TypedDict, total=False):
    replicas: int
    fullyLabeledReplicas: int
    readyReplicas: int
    availableReplicas: int
    terminatingReplicas: int
    finishedReplicas: int
    observedGeneration: int
    currentRevision: str
    updateRevision: str
    updatedReplicas: int
    revisions: list[Revision]
    conditions: list[Condition]


class VirtualMachineSpec(TypedDict, total=False):
    runStrategy: Literal["Always", "RerunOnFailure", "Once", "Manual", "Halted"]
    rerun: Rerun
    terminationGracePeriodSeconds: int
    evictionStrategy: Literal["LiveMigrate", "LiveMigrateIfPossible", "Shutdown", "External"]
    onNodeLoss: Literal["Restart", "Wait"]
    nodeSelector: dict[str, str]
    affinity: dict[str, Any]
    tolerations: list[dict[str, Any]]
    topologySpreadConstraints: list[dict[str, Any]]
    priorityClassName: str
    schedulerName: str
    nodeName: str
    accessCredentials: list[AccessCredential]
    managedSave: ManagedSave
    lifecycle: Lifecycle
    readinessProbe: Probe
    livenessProbe: Probe
    domain: Domain
    domainXML: str


class VirtualMachineStatus(TypedDict, total=False):
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
    fsFreezeStatus: Literal["frozen"]
    graphics: list[Graphics]
    vsock: VsockStatus
    devices: list[DeviceStatus]
    volumeStatus: list[VolumeStatus]
    podResize: PodResize
    running: RunningHardware
    changes: list[Change]
    managedSave: ManagedSaveStatus
    migration: MigrationState
    request: Request
    calls: list[Call]
    pause: Pause
    operations: list[Operation]
    runStrategyGeneration: int
    phaseTransitionTimestamps: list[PhaseTransitionTimestamp]


class VirtualMachineTemplate(TypedDict, total=False):
    metadata: Required[TemplateMetadata]
    spec: Required[VirtualMachineSpec]


class VolumeClaimTemplate(TypedDict, total=False):
    metadata: Required[ClaimMetadata]
    spec: Required[ClaimSpec]


class VolumeStatus(TypedDict, total=False):
    name: Required[str]
    claimName: str
    phase: Literal["Pending", "AttachedToNode"]
    reason: str
    message: str
    hotplugVolume: HotplugVolumeStatus


class Vsock(TypedDict, total=False):
    model: Literal["virtio"]


class VsockStatus(TypedDict, total=False):
    cid: int


class Watchdog(TypedDict, total=False):
    model: Literal["i6300esb"]
    action: Literal["reset", "shutdown", "poweroff", "pause", "none"]
