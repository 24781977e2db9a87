from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from apiserver.apis.virt.v1alpha1 import defaults, validation
from benchmarks import operations


@pytest.mark.parametrize("vm", [operations.machine(128, "fill=1"), operations.linux()], ids=["tiny", "linux"])
def test_machines_are_valid(vm: dict[str, object]) -> None:
    metadata = vm["metadata"]
    assert isinstance(metadata, dict)
    metadata["namespace"] = "bench"
    defaults.default_virtual_machine(vm)
    assert validation.validate_virtual_machine(vm) == []


def test_report_has_medians_and_percentiles() -> None:
    found = operations.report(
        {"suspend": [3.0, 1.0, 2.0], "resume": [4.0]},
        [0.3, 0.1, 0.2],
        {"own": [float(each) for each in range(1, 101)]},
        {"reset": 2},
    )
    assert found["suspension_of_1_gib_seconds"] == {"suspend": 2.0, "resume": 4.0}
    assert (found["screenshot_seconds"], found["writes"]) == (0.2, {"reset": 2})
    assert found["echo_milliseconds"]["own"]["median"] == 50.5
    assert 99 <= found["echo_milliseconds"]["own"]["p99"] <= 100


def test_report_of_ports_compares_both_programs() -> None:
    to_guest = {"ours": {"down": [10.0, 30.0, 20.0], "up": [4.0]}, "theirs": {"down": [40.0], "up": [2.0]}}
    found = operations.ports_report(to_guest, {"ours": {"down": [90.0]}}, {"down": {"virt-api": 2.345}})
    assert found["port_mib_per_second"]["ours"] == {"down": 20.0, "up": 4.0}
    assert found["port_ratio"] == {"down": 0.5, "up": 2.0}
    assert found["port_of_pod_mib_per_second"] == {"ours": {"down": 90.0}}
    assert found["port_of_pod_processor_seconds_per_gib"] == {"down": {"virt-api": 2.35}}


@pytest.mark.parametrize("direction", ["down", "up"])
def test_rate_is_that_of_one_connection(direction: str) -> None:
    def serve() -> None:
        link = server.accept()[0]
        with link:
            if link.recv(1) == b"r":
                link.settimeout(5)
                with contextlib.suppress(OSError):  # reset or broken pipe, when the other side has enough
                    while True:
                        link.sendall(bytes(1 << 16))
                return
            while link.recv(1 << 16):
                pass

    def end() -> None:
        server.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        guest = threading.Thread(target=serve)
        guest.start()
        rate = operations.moved(server.getsockname()[1], direction, 0.3)
        guest.join(timeout=10)
        assert rate > 1
        ended = threading.Thread(target=end)
        ended.start()
        with pytest.raises(ConnectionError):
            operations.moved(server.getsockname()[1], direction, 0.3)
        ended.join(timeout=10)
