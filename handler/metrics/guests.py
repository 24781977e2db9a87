"""The metrics of guests: Prometheus' text from libvirt's statistics. Pure.

Names, kinds, units and labels are KubeVirt's (docs/observability/metrics.md of kubevirt/kubevirt).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from apiserver.metrics.exposition import heading, label_text, number
from launcher.protocol.statistics import Statistics

SECOND: Final = 1e-9
"""Of libvirt's nanoseconds."""
KIB: Final = 1024
"""libvirt counts memory in KiB."""
OF_A_GUEST: Final = ("node", "namespace", "name")
"""Labels of every series."""
VCPU_STATES: Final = ("offline", "running", "blocked")
"""libvirt's virVcpuState."""


@dataclass(frozen=True, slots=True)
class Guest:
    """A guest's statistics, and its devices' names in its machine's spec, by libvirt's (``vda``, a tap)."""

    namespace: str
    name: str
    statistics: Statistics
    devices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with one series for each guest, or for each of its devices."""

    name: str
    about: str
    key: str
    """libvirt's name of the value, with ``*`` for the device's number."""
    unit: float = 1
    """A value of libvirt in this metric's unit."""
    labels: tuple[str, ...] = ()
    """Further labels, of the device."""

    @property
    def kind(self) -> str:
        """Prometheus' type: ``counter`` or ``gauge``."""
        return "counter" if self.name.endswith("_total") else "gauge"


def _memory(name: str, key: str, about: str) -> Metric:
    return Metric(f"kubevirt_vmi_memory_{name}", about, f"balloon.{key}", 1 if name.endswith("fault_total") else KIB)


def _vcpu(name: str, key: str, about: str) -> Metric:
    return Metric(f"kubevirt_vmi_vcpu_{name}_seconds_total", about, f"vcpu.*.{key}", SECOND, ("id", "state"))


def _network(name: str, key: str, about: str) -> Metric:
    return Metric(f"kubevirt_vmi_network_{name}_total", about, f"net.*.{key}", labels=("interface",))


def _storage(name: str, key: str, about: str) -> Metric:
    return Metric(f"kubevirt_vmi_storage_{name}_total", about, f"block.*.{key}", SECOND if "seconds" in name else 1, ("drive",))


METRICS: Final = (
    Metric("kubevirt_vmi_cpu_usage_seconds_total", "CPU time of the guest and QEMU.", "cpu.time", SECOND),
    Metric("kubevirt_vmi_cpu_user_usage_seconds_total", "CPU time in user mode.", "cpu.user", SECOND),
    Metric("kubevirt_vmi_cpu_system_usage_seconds_total", "CPU time in the kernel.", "cpu.system", SECOND),
    Metric("kubevirt_vmi_vcpu_seconds_total", "CPU time of each vCPU.", "vcpu.*.time", SECOND, ("id", "state")),
    _vcpu("wait", "wait", "Time that a vCPU waited for I/O."),
    _vcpu("delay", "delay", "Time that a vCPU was ready and waited for a processor of the node."),
    _memory("actual_balloon_bytes", "current", "Memory that the balloon leaves to the guest."),
    _memory("resident_bytes", "rss", "Resident memory of QEMU."),
    _memory("unused_bytes", "unused", "Memory that the guest does not use, without its caches."),
    _memory("available_bytes", "available", "Memory that the guest sees."),
    _memory("usable_bytes", "usable", "Memory that the guest can give to programs without swapping."),
    _memory("cached_bytes", "disk_caches", "Memory of the guest's disk caches."),
    _memory("pgmajfault_total", "major_fault", "Page faults of the guest that needed I/O."),
    _memory("pgminfault_total", "minor_fault", "Other page faults of the guest."),
    _memory("swap_in_traffic_bytes", "swap_in", "Memory that the guest has read from its swap."),
    _memory("swap_out_traffic_bytes", "swap_out", "Memory that the guest has written to its swap."),
    _network("receive_bytes", "rx.bytes", "Bytes that the guest received."),
    _network("receive_packets", "rx.pkts", "Packets that the guest received."),
    _network("receive_errors", "rx.errs", "Errors at the guest's reception."),
    _network("receive_packets_dropped", "rx.drop", "Packets for the guest that were dropped."),
    _network("transmit_bytes", "tx.bytes", "Bytes that the guest sent."),
    _network("transmit_packets", "tx.pkts", "Packets that the guest sent."),
    _network("transmit_errors", "tx.errs", "Errors at the guest's transmission."),
    _network("transmit_packets_dropped", "tx.drop", "Packets of the guest that were dropped."),
    _storage("iops_read", "rd.reqs", "Read requests."),
    _storage("iops_write", "wr.reqs", "Write requests."),
    _storage("read_traffic_bytes", "rd.bytes", "Bytes that the guest read."),
    _storage("write_traffic_bytes", "wr.bytes", "Bytes that the guest wrote."),
    _storage("read_times_seconds", "rd.times", "Time of read requests."),
    _storage("write_times_seconds", "wr.times", "Time of write requests."),
    _storage("flush_requests", "fl.reqs", "Flush requests."),
    _storage("flush_times_seconds", "fl.times", "Time of flush requests."),
)


def lines(node: str, guests: Sequence[Guest]) -> Iterator[str]:
    """Yield the lines of all metrics of a node's guests, without line ends."""
    found = [(guest, _by_key(guest.statistics)) for guest in guests]
    for metric in METRICS:
        labels = (*OF_A_GUEST, *metric.labels)
        yield from heading(metric.name, metric.kind, metric.about)
        for guest, values in found:
            for index, value in values.get(metric.key, ()):
                text = label_text(labels, (node, guest.namespace, guest.name, *(_label(guest, each, index) for each in metric.labels)))
                yield f"{metric.name}{text} {number(value * metric.unit)}"


def _by_key(statistics: Statistics) -> Mapping[str, list[tuple[str, int]]]:
    """Return (device's number, value) pairs by the key that :data:`METRICS` uses; the number is empty for the guest's own values."""
    found: dict[str, list[tuple[str, int]]] = {}
    for name, value in statistics.items():
        if isinstance(value, int):
            kind, *rest = name.split(".")
            index = rest[0] if rest[0].isdecimal() else ""
            found.setdefault(".".join((kind, "*", *rest[1:])) if index else name, []).append((index, value))
    return found


def _label(guest: Guest, label: str, index: str) -> str:
    match label:
        case "id":
            return index
        case "state":
            state = guest.statistics.get(f"vcpu.{index}.state")
            return VCPU_STATES[state] if isinstance(state, int) and state < len(VCPU_STATES) else "unknown"
        case _:
            target = str(guest.statistics.get(f"{'net' if label == 'interface' else 'block'}.{index}.name", index))
            return guest.devices.get(target, index)  # not the launcher's target, which could have any number of values
