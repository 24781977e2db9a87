"""Runs each attack on a new server: ``make bench-attacks``."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.api import machine
from benchmarks.attacks.attackers import ATTACKS
from benchmarks.attacks.target import Certificates, FrontProxy, Served, Target, cluster, serving

_SAMPLE_SECONDS: Final = 0.25
_SETTLE_SECONDS: Final = 1.0
_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class Case:
    """An attack with its number of connections and addresses; ``times``: factor of its duration."""

    attack: str
    count: int
    addresses: int = 1
    times: float = 1.0

    @property
    def name(self) -> str:
        """Return the case's name in the table: attack, count and addresses."""
        return f"{self.attack} × {self.count}" + (f" from {self.addresses}" if self.addresses > 1 else "")


CASES: Final = (
    Case("silent", 2000),
    Case("silent", 2000, 200),
    Case("half-handshakes", 2000, 200),
    Case("unfinished-handshakes", 2000, 200),
    Case("large-hellos", 2000, 200),
    Case("announced-hellos", 2000, 200),
    Case("half-heads", 480, 1, 2.5),
    Case("half-heads", 2000, 200, 2.5),
    Case("slow-heads", 2000, 200),
    Case("whole-heads", 64, 8),
    Case("remembered-heads", 8, 8),
    Case("slow-bodies", 2000, 200),
    Case("unread-answers", 480, 48),
    Case("key-updates", 8, 8),
    Case("handshake-flood", 64),
    Case("handshake-flood", 256, 32),
    Case("hello-flood", 512, 32),
    Case("connection-flood", 64, 32),
    Case("requests", 512, 32),
    Case("bad-tokens", 256, 32),
)


async def run(case: Case, seconds: float, source: Path, python: str) -> dict[str, Any]:
    """Attack a new virt-api for ``seconds`` times ``case.times``; return its memory, and figures of the front proxy's requests."""
    with tempfile.TemporaryDirectory() as directory:
        certificates = Certificates(Path(directory))
        async with cluster(certificates) as config, serving(certificates, config, source, python) as target:
            proxy = FrontProxy(target, certificates)
            async with asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(proxy.run())
                await asyncio.sleep(_SETTLE_SECONDS)
                idle = target.resident_mib
                target.forget_peak()
                for served in (proxy.kept, proxy.new):
                    served.seconds.clear()
                sockets = _Sockets(target)
                sampling = tasks.create_task(sockets.run())
                attackers = await _attack(case, target.port, seconds * case.times)
                for task in (asking, sampling):
                    task.cancel()
            return {
                "name": case.name, **asdict(case), "idle_mib": round(idle, 1), "peak_mib": round(target.peak_mib - idle, 1),
                "sockets_mib": round(sockets.most, 1), **attackers, "kept": _figures(proxy.kept), "new": _figures(proxy.new),
            }  # fmt: skip


class _Sockets:
    """Samples the kernel's memory for the server's connections; ``most`` is the maximum in MiB."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.most = 0.0

    async def run(self) -> None:
        while True:
            self.most = max(self.most, await asyncio.to_thread(self._target.socket_mib))
            await asyncio.sleep(_SAMPLE_SECONDS)


async def _attack(case: Case, port: int, seconds: float) -> dict[str, Any]:
    command = [
        sys.executable, "-m", "benchmarks.attacks.attackers", case.attack, f"--port={port}", f"--count={case.count}",
        f"--seconds={seconds}", f"--addresses={case.addresses}",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    process = await asyncio.create_subprocess_exec(*command, cwd=_ROOT, env=environment, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{case.name}: the attackers failed")
    found: dict[str, Any] = json.loads(said)
    return found


def _figures(served: Served) -> dict[str, Any]:
    seconds = served.seconds or [float("inf")]
    return {
        "answers": len(served.seconds), "failures": served.failures[:5], "failed": len(served.failures),
        "median_ms": round(statistics.median(seconds) * 1e3, 1), "slowest_ms": round(max(seconds) * 1e3, 1),
    }  # fmt: skip


def line(found: dict[str, Any]) -> str:
    served = [
        f"{each['answers'] - each['failed']}/{each['answers']} {each['median_ms']:.0f}/{each['slowest_ms']:.0f} ms"
        for each in (found["kept"], found["new"])
    ]
    connections = f"{found['connections']} ({found['open_at_end']})"
    return f"{found['name']:42} {found['peak_mib']:8.1f} {found['sockets_mib']:8.1f} {connections:>16}   {served[0]:28} {served[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME,…", help=f"some of {', '.join(ATTACKS)}")
    parser.add_argument("--seconds", type=float, default=12.0, help="how long each attack lasts")
    parser.add_argument("--source", type=Path, default=_ROOT, help="a directory with the sources of the server to attack")
    parser.add_argument("--python", default="", help="what the server runs on; needs its packages (default: that of virt-api's image)")
    parser.add_argument("--output", type=Path, default=_ROOT / "build/bench/attacks.json")
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    python = machine.interpreter(given.python)
    only = given.only.split(",") if given.only else list(ATTACKS)
    print(
        f"{'attack × connections from addresses':42} {'MiB more':>8} {'sockets':>8} {'made (open)':>16}   "
        f"{'served, median/slowest: kept connection':28} new connections"
    )
    results: list[dict[str, Any]] = []
    for case in CASES:
        if case.attack in only:
            results.append(asyncio.run(run(case, given.seconds, given.source.absolute(), python)))
            print(line(results[-1]), flush=True)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    found = {"machine": machine.describe("", python), "source": str(given.source), "results": results}
    given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
