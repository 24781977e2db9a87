from __future__ import annotations

from handler.metrics.guests import METRICS, Guest, lines
from launcher.protocol.statistics import KEPT

STATISTICS: dict[str, int | str] = {
    "cpu.time": 2_500_000_000,
    "balloon.rss": 3,
    "balloon.major_fault": 4,
    "balloon.swap_in": 5,
    "balloon.swap_out": 6,
    "vcpu.0.state": 1,
    "vcpu.0.time": 1_000_000_000,
    "vcpu.1.state": 9,
    "vcpu.1.time": 0,
    "net.0.name": "tap0",
    "net.0.rx.bytes": 11,
    "block.0.name": "vda",
    "block.0.rd.times": 500_000_000,
    "block.0.wr.times": 250_000_000,
    "block.0.fl.times": 125_000_000,
    "block.1.name": 'v"db',
    "block.1.rd.times": 0,
}
GUEST = Guest("ns", "vm", STATISTICS, {"vda": "root", "tap0": "default"})


def series(*guests: Guest) -> list[str]:
    return [each for each in lines("node1", guests) if not each.startswith("#")]


def test_values_have_the_units_and_labels_of_kubevirt() -> None:
    machine = 'node="node1",namespace="ns",name="vm"'
    assert series(GUEST) == [
        f"kubevirt_vmi_cpu_usage_seconds_total{{{machine}}} 2.5",
        f'kubevirt_vmi_vcpu_seconds_total{{{machine},id="0",state="running"}} 1',
        f'kubevirt_vmi_vcpu_seconds_total{{{machine},id="1",state="unknown"}} 0',
        f"kubevirt_vmi_memory_resident_bytes{{{machine}}} 3072",
        f"kubevirt_vmi_memory_pgmajfault_total{{{machine}}} 4",
        f"kubevirt_vmi_memory_swap_in_traffic_bytes{{{machine}}} 5120",
        f"kubevirt_vmi_memory_swap_out_traffic_bytes{{{machine}}} 6144",
        f'kubevirt_vmi_network_receive_bytes_total{{{machine},interface="default"}} 11',
        f'kubevirt_vmi_storage_read_times_seconds_total{{{machine},drive="root"}} 0.5',
        f'kubevirt_vmi_storage_read_times_seconds_total{{{machine},drive="1"}} 0',
        f'kubevirt_vmi_storage_write_times_seconds_total{{{machine},drive="root"}} 0.25',
        f'kubevirt_vmi_storage_flush_times_seconds_total{{{machine},drive="root"}} 0.125',
    ]


def test_each_metric_has_one_heading_for_all_guests() -> None:
    found = list(lines("node1", [GUEST, GUEST]))
    assert sum(each.startswith("# TYPE") for each in found) == len(METRICS)
    assert len(series(GUEST, GUEST)) == 2 * len(series(GUEST))
    assert series() == []


def test_every_metric_has_a_value_that_launchers_send() -> None:
    assert all(KEPT.fullmatch(each.key.replace("*", "0")) for each in METRICS)
    assert len({each.name for each in METRICS}) == len(METRICS)
    assert {each.kind for each in METRICS if each.name.endswith("_total")} == {"counter"}
