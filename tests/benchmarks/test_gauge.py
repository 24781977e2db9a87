from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import disks, gauges, network
from benchmarks.gauges import MIB, NotMeasured, Reading
from tests.cluster.kube import eventually
from tests.ports import free_port
from tests.testbed import layout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def gauge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("gauge") / "gauge"
    source = layout.REPOSITORY / "images/testguest/gauge.c"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(source)], check=True)
    return program


def run(gauge: Path, words: str) -> Reading:
    done = subprocess.run([gauge, *words.split()], capture_output=True, text=True, timeout=60, check=False)
    return gauges.reading(done.stdout + done.stderr)


@pytest.fixture
def server(gauge: Path) -> Iterator[int]:
    number = free_port()
    with subprocess.Popen([gauge, "serve", str(number)], start_new_session=True) as process:
        try:
            yield number
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_each_work_reads_and_writes_the_file(gauge: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk.img"
    disk.write_bytes(bytes(32 * MIB))
    for work in disks.WORKS.values():
        read = run(gauge, work.words(str(disk), 1))
        assert read.operations >= work.jobs
        assert read.bytes == read.operations * work.block_bytes
        assert read.seconds >= 1
    assert disk.stat().st_size == 32 * MIB
    assert any(disk.read_bytes())


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_connection_is_counted_in_each_direction(gauge: Path, server: int, address: str) -> None:
    def connects() -> bool:
        try:
            return run(gauge, f"connect {address} {server} 1 1").operations > 0
        except NotMeasured:
            return False

    eventually(connects, timeout=30, what="the server")
    sent, received = (run(gauge, f"{what} {address} {server} 1") for what in ("send", "receive"))
    assert sent.bytes > 0
    assert received.bytes > 0
    made = run(gauge, f"connect {address} {server} {network.JOBS} 1")
    assert made.bytes == made.operations > network.JOBS


@pytest.mark.parametrize(
    "words",
    [
        "file /dev/null/none random read 4096 2 1",
        "connect 127.0.0.1 1 2 1",
        "send nobody 1 1",
        "file x random read 0 1 1",
        "connect ::1",
        "",
    ],
)
def test_failing_gauge_prints_no_figures(gauge: Path, words: str) -> None:
    with pytest.raises(NotMeasured, match="gauge"):
        run(gauge, words)
