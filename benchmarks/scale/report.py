"""The table of the figures, next to KubeVirt's published ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Run: TypeAlias = Mapping[str, Any]
"""``machines``, ``nodes``, and the figures of each step."""
KUBEVIRT: Final = "KubeVirt, 100"
"""KubeVirt's density test (docs/perf-scale-benchmarks.md, v1.5 to v1.8): 100 VMIs with real guests, weekly averages."""
LINEAR: Final = 1.3
"""Largest growth per machine, from the smallest to the largest size, that counts as linear."""
HOUR: Final = 3600.0
STEPS: Final = ("start", "idle", "restart", "crash", "drain", "unreachable", "loss")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: one figure of each run."""

    title: str
    value: Callable[[Run], float]
    kubevirt: str = ""
    per_machine: bool | None = None
    """The figure is one machine's, or should grow with their number; None: no rule."""


def _milliseconds(step: str, *programs: str) -> Callable[[Run], float]:
    return lambda run: round(1e3 * sum(_processor(run, step, *programs)) / run["machines"], 1)


def _processor(run: Run, step: str, *programs: str) -> list[float]:
    return [seconds for name, seconds in run[step]["processor"].items() if name.startswith(programs)]


def _cores(step: str, program: str) -> Callable[[Run], float]:
    return lambda run: round(sum(_processor(run, step, program)) / run[step]["seconds"], 3)


def _hourly(etcd: str) -> Callable[[Run], float]:
    return lambda run: round(run["idle"]["etcd_writes"][etcd] * HOUR / run["idle"]["seconds"] / run["machines"], 1)


ROWS: Final = (
    Row("nodes", lambda run: run["nodes"]),
    Row("load of this machine", lambda run: run["load"]),
    Row("all Running, s", lambda run: run["start"]["seconds"], per_machine=False),
    Row("processor of each start, ms: virt-api", _milliseconds("start", "virt-api"), per_machine=True),
    Row("  virt-controller", _milliseconds("start", "virt-controller"), per_machine=True),
    Row("  kube-apiserver", _milliseconds("start", "kube-apiserver"), per_machine=True),
    Row("  scheduler, etcds", _milliseconds("start", "kube-scheduler", "etcd", "virt-etcd"), per_machine=True),
    Row("  simulated nodes", _milliseconds("start", "kubelets", "handlers"), per_machine=True),
    Row(
        "writes to our etcd for each start", lambda run: round(run["start"]["etcd_writes"]["virt-etcd"] / run["machines"], 2), "6.4 to 10.5"
    ),
    Row("unwanted restarts of virt-controller", lambda run: sum(run[step]["restarts"] for step in STEPS if step in run)),
    Row("idle: cores of virt-api", _cores("idle", "virt-api"), "0.012"),
    Row("  cores of virt-controller", _cores("idle", "virt-controller"), "0.027"),
    Row("  cores of kube-apiserver", _cores("idle", "kube-apiserver")),
    Row("  writes to our etcd, per machine and hour", _hourly("virt-etcd")),
    Row("  to Kubernetes' etcd, per machine and hour", _hourly("etcd")),
    Row("  of these not Leases, in all", lambda run: run["idle"]["objects"]),
    Row("memory, MiB: virt-api", lambda run: run["idle"]["memory"]["virt-api"], "134", per_machine=False),
    Row("  virt-controller", lambda run: run["idle"]["memory"]["virt-controller"], "60", per_machine=False),
    Row("  kube-apiserver", lambda run: run["idle"]["memory"]["kube-apiserver"], per_machine=False),
    Row("virt-controller restarted: a new machine runs, s", lambda run: run["restart"]["recovered"]),
    Row("  after SIGKILL, s", lambda run: run["crash"]["recovered"]),
    Row("drained machines", lambda run: run["drain"]["machines"]),
    Row("  s", lambda run: run["drain"]["seconds"]),
    Row("  evictions that end kubectl drain", lambda run: run["drain"]["failed"]),
    Row("machines of an unreachable rack", lambda run: run["unreachable"]["machines"]),
    Row("  until all are Unknown, s", lambda run: run["unreachable"]["unknown"]),
    Row("  back: all Running, s", lambda run: run["unreachable"]["back"]),
    Row("  or switched off: all Running elsewhere, s", lambda run: run["loss"]["elsewhere"]),
)


def table(runs: Sequence[Run]) -> str:
    """Return the rows with a column for each run, the growth, and KubeVirt's figures; figures of missing steps are empty."""
    heads = ["machines", *(str(run["machines"]) for run in runs), "growth", KUBEVIRT]
    lines = [heads, *([row.title, *(_shown(row, run) for run in runs), growth(row, runs), row.kubevirt] for row in ROWS)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(_line(line, widths) for line in lines) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if not column else cell.rjust(width) for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join((first, *others)).rstrip()


def _shown(row: Row, run: Run) -> str:
    found = _value(row, run)
    return "" if found is None else f"{found:,}"


def _value(row: Row, run: Run) -> float | None:
    try:
        return row.value(run)
    except KeyError:
        return None


def growth(row: Row, runs: Sequence[Run]) -> str:
    """Return the factor by which a figure per machine grew from the first to the last run, with a mark if above ``LINEAR``.

    Empty for an unknown figure or zero, and without a rule.
    """
    if row.per_machine is None or len(runs) < 2:
        return ""
    first, last = (_value(row, run) for run in (runs[0], runs[-1]))
    if not first or not last:
        return ""
    factor = last / first / (1 if row.per_machine else runs[-1]["machines"] / runs[0]["machines"])
    return f"{factor:.2f}{' !' if factor > LINEAR else ''}"
