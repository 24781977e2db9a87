"""Processor time, memory and writes of the control plane."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.scale.cluster import Cluster
from tests.cluster.processes import processor_seconds, resident_kib

_WRITES: Final = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<value>[0-9.e+]+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
UNCOUNTED: Final = frozenset({"leases", "subjectaccessreviews", "tokenreviews", "selfsubjectreviews"})
"""Reviews are not stored."""
_VERBS: Final = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})


@dataclass(frozen=True, slots=True)
class Reading:
    """Totals since the programs started."""

    at: float
    processor: Mapping[str, float]
    """Seconds, by program."""
    revisions: Mapping[str, int]
    """By etcd: the number of its writes."""
    requests: Mapping[str, float]
    """Successful writes at kube-apiserver, by resource."""

    def since(self, before: Reading) -> Spent:
        """Return what was spent after an earlier reading."""
        return Spent(
            seconds=self.at - before.at,
            processor={name: round(_grown(before.processor.get(name, 0.0), value), 2) for name, value in self.processor.items()},
            writes={name: value - before.revisions[name] for name, value in self.revisions.items()},
            requests={name: round(value - before.requests.get(name, 0)) for name, value in self.requests.items()},
        )


def _grown(before: float, value: float) -> float:
    return value - before if value >= before else value  # a new process starts with 0


@dataclass(frozen=True, slots=True)
class Spent:
    """The difference of two readings."""

    seconds: float
    processor: Mapping[str, float]
    writes: Mapping[str, int]
    requests: Mapping[str, int]

    def objects(self) -> int:
        """Return the number of writes of objects other than Leases and reviews."""
        return sum(count for name, count in self.requests.items() if name not in UNCOUNTED)

    def changed(self) -> dict[str, int]:
        """Return the writes at kube-apiserver by resource, largest first."""
        return dict(sorted(((name, count) for name, count in self.requests.items() if count), key=lambda each: -each[1]))


class Meter:
    """Reads a running cluster's processor times, memory and writes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def pids(self) -> dict[str, int]:
        """Return the process ids by program."""
        kubernetes = self._cluster.here.kubernetes
        assert kubernetes is not None
        found = {"etcd": self._cluster.here.etcd.pid, "virt-etcd": self._cluster.ours.pid, "kube-apiserver": kubernetes.pid}
        running = {name: program.pid for name, program in self._cluster.programs.items() if program.process.poll() is None}
        return {**found, **running}

    def read(self) -> Reading:
        """Return the totals of now."""
        page = self._cluster.here.call("GET", "/metrics")[1]
        return Reading(
            at=time.monotonic(),
            processor={name: processor_seconds(pid) for name, pid in self.pids().items()},
            revisions={"etcd": revision(self._cluster.here.etcd_url), "virt-etcd": revision(self._cluster.ours.endpoint)},
            requests=writes(page.decode()),
        )

    def memory(self) -> dict[str, int]:
        """Return the resident MiB of each program."""
        return {name: resident_kib(pid) >> 10 for name, pid in self.pids().items()}


def revision(endpoint: str) -> int:
    asked = urllib.request.Request(f"{endpoint}/v3/maintenance/status", data=b"{}", method="POST")
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return int(json.loads(answer.read())["header"]["revision"])


def writes(page: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in _WRITES.finditer(page):
        labels = dict(_LABEL.findall(each["labels"]))
        if labels["verb"] in _VERBS and labels["code"].startswith("2"):
            name = "/".join(filter(None, (labels["resource"], labels["subresource"])))
            found[name] = found.get(name, 0.0) + float(each["value"])
    return found
