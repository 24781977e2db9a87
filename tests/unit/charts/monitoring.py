"""The queries of the chart's dashboards and alerts, and the metrics that our processes export."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from controller.manager import machine_metrics
from handler.metrics import guests, statistics

ROOT: Final = Path(__file__).parents[3]
DIRECTORY: Final = ROOT / "charts" / "kubevirt" / "monitoring"
ALERTS: Final = DIRECTORY / "alerts.yaml"
NAMED: Final = re.compile(r"\b(up|(?:kubevirt|apiserver|etcd|controller_runtime|process)_\w+)\b")
SELECTOR: Final = re.compile(rf"{NAMED.pattern}(?:\{{([^}}]*)\}})?")
_PACKAGES: Final = ("apiserver", "controller", "handler")
_OF_HISTOGRAM: Final = ("_bucket", "_count", "_sum")


def dashboards() -> Mapping[str, Any]:
    return {each.name: json.loads(each.read_text(encoding="utf-8")) for each in sorted(DIRECTORY.glob("*.json"))}


def queries() -> Iterator[tuple[str, str]]:
    for dashboard in dashboards().values():
        for panel in dashboard["panels"]:
            yield from ((f"{dashboard['title']}: {panel['title']}", str(target["expr"])) for target in panel["targets"])


def alerts() -> Mapping[str, Mapping[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def metrics_in(expression: str) -> set[str]:
    found = NAMED.findall(re.sub(r"\{[^}]*\}", "", expression))
    return {next((each.removesuffix(end) for end in _OF_HISTOGRAM if each.endswith(f"_seconds{end}")), each) for each in found}


@cache
def exported() -> frozenset[str]:
    sources = [path.read_text(encoding="utf-8") for package in _PACKAGES for path in (ROOT / package).rglob("*.py")]
    written = {name for text in sources for name in re.findall(rf'"{NAMED.pattern}"', text)}
    of_processes = {f"process_{name}" for text in sources for name in re.findall(r'one\("(\w+)"', text)}
    return frozenset({"up", statistics.MISSING, *machine_metrics.ABOUT, *(each.name for each in guests.METRICS)} | written | of_processes)
