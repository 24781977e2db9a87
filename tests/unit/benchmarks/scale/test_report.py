from __future__ import annotations

from typing import Any

import pytest

from benchmarks.scale import report
from benchmarks.scale.report import ROWS, Row, growth, table


def a_run(machines: int, seconds: float, **steps: Any) -> dict[str, Any]:
    start = {
        "seconds": seconds,
        "processor": {"virt-api": 2.0, "etcd": 1.0},
        "etcd_writes": {"virt-etcd": 6 * machines, "etcd": 9},
        "restarts": 0,
    }
    return {"machines": machines, "nodes": machines // 10, "load": 1.5, "start": start, **steps}


IDLE = {
    "seconds": 60.0,
    "processor": {"virt-api": 0.6, "virt-controller": 1.2, "kube-apiserver": 6.0},
    "etcd_writes": {"virt-etcd": 0, "etcd": 1_200},
    "writes": {"leases": 1_198, "events": 2},
    "objects": 2,
    "restarts": 1,
    "memory": {"virt-api": 60, "virt-controller": 50, "kube-apiserver": 400},
}


def row(title: str) -> Row:
    return next(each for each in ROWS if each.title.strip() == title)


def value(title: str, run: dict[str, Any]) -> float:
    return row(title).value(run)


def test_values_are_per_machine_and_hour() -> None:
    run = a_run(100, 50, idle=IDLE)
    assert value("writes to our etcd for each start", run) == 6
    assert value("processor of each start, ms: virt-api", run) == 20
    assert value("scheduler, etcds", run) == 10
    assert value("to Kubernetes' etcd, per machine and hour", run) == 720
    assert value("of these not Leases, in all", run) == 2
    assert value("unwanted restarts of virt-controller", run) == 1
    assert value("idle: cores of virt-api", run) == 0.01
    assert value("cores of virt-controller", run) == 0.02


@pytest.mark.parametrize(("seconds", "wanted"), [(1_000, "1.00"), (1_250, "1.25"), (2_000, "2.00 !")], ids=["linear", "almost", "too-much"])
def test_growth_is_per_machine(seconds: float, wanted: str) -> None:
    assert growth(row("all Running, s"), [a_run(100, 50), a_run(2_000, seconds)]) == wanted


def test_growth_of_one_machines_figure_ignores_their_number() -> None:
    runs = [a_run(100, 50), a_run(50, 50)]
    assert growth(row("processor of each start, ms: virt-api"), runs) == "2.00 !"
    assert growth(row("nodes"), runs) == growth(row("all Running, s"), runs[:1]) == ""


def test_table_of_an_unfinished_run_lacks_the_other_figures() -> None:
    lines = table([a_run(1_000, 50.0), {"machines": 2_000, "nodes": 200}]).splitlines()
    assert lines[0].split() == ["machines", "1000", "2000", "growth", "KubeVirt,", "100"]
    assert len(lines) == len(ROWS) + 1
    assert next(each for each in lines if "all Running, s" in each).split()[-1] == "50.0"
    assert next(each for each in lines if "writes to our etcd for" in each).split()[-4:] == ["6.0", "6.4", "to", "10.5"]
    assert report.KUBEVIRT in lines[0]
