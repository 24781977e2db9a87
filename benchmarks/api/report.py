"""Turns samples into a table and ``api.json``."""

from __future__ import annotations

import json
import statistics
from typing import Any, Final

from benchmarks.api.operations import MEMORY, OPERATIONS, THROUGH_AGGREGATOR, VARIED, Operation

Result = dict[str, Any]
REFERENCE, TUNED, OURS, MACHINES = "reference", "reference400", "ours", "vms"
_DELETE: Final = Operation("delete", "delete")
ROWS: Final = (*OPERATIONS[:4], _DELETE, *OPERATIONS[4:], *VARIED, MEMORY)
REVIEWED_APART: Final = 0.1
"""Allowed difference of two servers' reviews per request; varied rows have a fifth to a quarter."""


def cost(key: str, sample: Result) -> float:
    """Return a sample's cost: microseconds of the server's processor time per operation, or per delivery to watchers; or KiB of memory."""
    if key == MEMORY.key:
        return float(sample["rss_kib"])
    done: int = sample.get("deliveries") or sample["count"]
    return float(sample["cpu_seconds"]["server"]) * 1e6 / max(done, 1)


def costs(result: Result, key: str, name: str) -> list[float]:
    return [cost(key, sample) for sample in result["samples"].get(key, {}).get(name, [])]


def ratio(result: Result, key: str, reference: str, ours: str = OURS) -> float | None:
    """Return the reference server's median cost divided by ours; None without both samples or with unequal work."""
    theirs, own = costs(result, key, reference), costs(result, key, ours)
    if not theirs or not own or statistics.median(own) == 0 or are_apart(result, key, reference, ours):
        return None
    return round(statistics.median(theirs) / statistics.median(own), 2)


def reviewed(result: Result, key: str, name: str) -> float:
    shares: list[float] = [each.get("reviewed", 0.0) for each in result["samples"].get(key, {}).get(name, [])]
    return statistics.median(shares) if shares else 0.0


def are_apart(result: Result, key: str, reference: str, ours: str = OURS) -> bool:
    return abs(reviewed(result, key, reference) - reviewed(result, key, ours)) > REVIEWED_APART


def apart(result: Result) -> dict[str, dict[str, str]]:
    measured = [key for key, samples in result["samples"].items() if samples.get(REFERENCE) and samples.get(OURS)]
    return {
        key: {
            OURS: f"it asked for {reviewed(result, key, OURS):.2f} reviews a request, reference for {reviewed(result, key, REFERENCE):.2f}:"
            " they had not the same to do"
        }
        for key in measured
        if are_apart(result, key, REFERENCE)
    }


def finish(result: Result, *, through_aggregator: bool = False) -> Result:
    keys = [each.key for each in (*OPERATIONS, *VARIED, MEMORY)]
    ratios = {key: value for key in keys if (value := ratio(result, key, REFERENCE)) is not None}
    tuned = {key: value for key in keys if (value := ratio(result, key, TUNED)) is not None}
    wanted = {each.key: each.wanted for each in (*OPERATIONS, *VARIED, MEMORY) if each.wanted}
    if through_aggregator:
        wanted = dict.fromkeys((each.key for each in ROWS), THROUGH_AGGREGATOR)
    return {"ratios": ratios, "ratios_gogc400": tuned, "wanted": wanted, **result, "failures": {**apart(result), **result["failures"]}}


def encode(result: Result) -> str:
    return json.dumps(result, indent=1) + "\n"


def table(result: Result) -> str:
    about = result["machine"]
    features = ", ".join(key if on else f"{key} NOT YET" for key, on in about["features"].items())
    lines = [
        f"revision {about['revision']}, {about['time']}, {about['processors']} processors ({about['model']}), Python {about['python']},"
        f" load {about['load_at_start']} at the start and {about.get('load_at_end', '?')} at the end",
        f"clients ask {about['asked']}; our server with: {features}, metrics, authorization by SubjectAccessReview, admission",
        "server's processor time for one operation in µs (watch: one delivery, its share of the write included); median (lowest-highest);"
        " ratio: reference / ours; memory in MiB",
        "",
        f"{'operation':16}{'reference':>22}{'reference GOGC=400':>22}{'ours':>22}{'ratio':>8}{'/400':>7}{'wanted':>8}",
    ]
    lines += [_row(result, each) for each in ROWS if result["samples"].get(each.key) or result["failures"].get(each.key)]
    lines += [
        "",
        f"{'operation':16}{'server':10}{'ops/s':>9}{'p50 µs':>10}{'p99 µs':>10}{'bytes':>10}{'etcd µs':>9}{'kube µs':>9}{'conns':>7}",
    ]
    lines += [line for each in ROWS if each.key != MEMORY.key for line in _speeds(result, each.key)]
    for name, samples in result["samples"].get(MEMORY.key, {}).items():
        sample = samples[-1]
        lines.append(
            f"{MEMORY.key:16}{name:10} ready after {sample['ready_seconds']} s, {sample['rss_kib'] // 1024} MiB;"
            f" one list in {sample['list_seconds']} s, then {sample['rss_after_list_kib'] // 1024} MiB"
        )
    lines += [f"{key} at {name} failed: {why[:300]}" for key, each in result["failures"].items() for name, why in each.items()]
    return "\n".join(lines)


def _row(result: Result, operation: Operation) -> str:
    key = operation.key
    scale = 1 / 1024 if key == MEMORY.key else 1.0
    cells = [_spread(costs(result, key, name), scale) for name in (REFERENCE, TUNED, OURS)]
    found, tuned = ratio(result, key, REFERENCE), ratio(result, key, TUNED)
    wanted = result["wanted"].get(key, 0.0)
    row = f"{key:16}" + "".join(f"{cell:>22}" for cell in cells)
    row += (
        f"{'-' if found is None else f'{found:.1f}':>8}{'-' if tuned is None else f'{tuned:.1f}':>7}{f'{wanted:g}' if wanted else '-':>8}"
    )
    if machines := costs(result, key, MACHINES):
        row += f"   (VirtualMachine: {_spread(machines, scale)})"
    return row + ("" if found is None or found >= wanted else "  SHORT")


def _spread(values: list[float], scale: float) -> str:
    if not values:
        return "-"
    middle, low, high = (_short(each * scale) for each in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({low}-{high})"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _microseconds_of(samples: list[Result], name: str) -> float:
    used: list[float] = [each["cpu_seconds"].get(name, 0) * 1e6 / max(each["count"], 1) for each in samples]
    return statistics.median(used)


def _speeds(result: Result, key: str) -> list[str]:
    lines = []
    for name, samples in result["samples"].get(key, {}).items():
        middle = {field: statistics.median([each[field] for each in samples]) for field in ("p50_us", "p99_us", "bytes_per_answer")}
        speed = statistics.median([each["count"] / each["seconds"] for each in samples])
        etcd, kube = (_microseconds_of(samples, process) for process in ("etcd", "kube-apiserver"))
        line = f"{key:16}{name:10}{speed:9.0f}" + "".join(f"{value:10.0f}" for value in middle.values())
        line += f"{etcd:9.0f}{kube:9.0f}{samples[0]['connections']:7}"
        if samples[0].get("deliveries"):
            deliveries = statistics.median([each["deliveries"] / each["seconds"] for each in samples])
            p50, p99 = (statistics.median([each[field] for each in samples]) for field in ("delivery_p50_us", "delivery_p99_us"))
            line += f"   {deliveries:.0f} deliveries/s to {samples[0]['watchers']} watchers, after {p50:.0f} µs (p50), {p99:.0f} µs (p99)"
        if "reviewed" in samples[0]:
            line += f"   {statistics.median([each['reviewed'] for each in samples]):.2f} reviews a request"
        lines.append(line)
    return lines
