"""``python -m benchmarks.api.profile get``: prints where our server spends its time during one operation.

py-spy samples the server, including C code. *self* is the time in a function itself; *total* includes all that it calls.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.api import machine, operations
from benchmarks.api.loading import SampleFailed
from benchmarks.api.operations import OPERATIONS, VARIED, Operation
from benchmarks.api.rounds import Bench, prepared
from tests.reference_server import servers
from tests.reference_server.programs import ProgramFailed
from tests.testbed import layout
from tests.testbed.progress import StepFailed

TOP: Final = 22
_IDLE: Final = ("epoll_wait", "epoll_pwait", "uv__io_poll", "__GI_epoll")


_WAITING: Final = ("_worker (concurrent/futures/thread.py)", "wait (threading.py)")


def _deepest(frames: list[str]) -> str:
    return next((frame for frame in reversed(frames) if ".py)" in frame), "")


def folded(stacks: str) -> tuple[int, Counter[str], Counter[str]]:
    """Return the number of busy samples, and by function those ending in it and those passing through it.

    ``stacks``: from ``py-spy record --format raw``.
    """
    count, own, total = 0, Counter[str](), Counter[str]()
    for line in stacks.splitlines():
        stack, _, number = line.rpartition(" ")
        frames = [_short(frame) for frame in stack.split(";")]
        if not number.isdigit() or frames[-1].startswith(_IDLE) or _deepest(frames) in _WAITING:
            continue
        count += int(number)
        own[frames[-1]] += int(number)
        for frame in set(frames):
            total[frame] += int(number)
    return count, own, total


def _short(frame: str) -> str:
    name, _, place_ = frame.partition(" (")
    if name.startswith("0x"):
        name = "?"  # a library without symbols
    where = place_.rstrip(")").rpartition(":")[0] or place_.rstrip(")")
    for root in ("site-packages/", f"{layout.REPOSITORY}/", "/tree/", "dist-packages/", "python3.13/", "python3.11/", "lib/"):
        where = where.rpartition(root)[2]
    return f"{name} ({where})" if where else name


def render(operation: str, count: int, own: Counter[str], total: Counter[str]) -> str:
    lines = [f"{operation}: {count} samples", "", f"{'self':>7}  function"]
    lines += [f"{number / count:7.1%}  {name}" for name, number in own.most_common(TOP)]
    lines += ["", f"{'total':>7}  function"]
    lines += [f"{number / count:7.1%}  {name}" for name, number in total.most_common() if ".py)" in name][: 2 * TOP]
    return "\n".join(lines)


def record(bench: Bench, operation: Operation, seconds: float, *, native: bool) -> str:
    """Repeat an operation for ``seconds`` under py-spy; return the first contestant server's folded stacks, or raise SampleFailed."""
    contestant = bench.contestants[0]
    with tempfile.NamedTemporaryFile(suffix=".raw") as raw:
        command = [
            str(Path(sys.executable).with_name("py-spy")),
            "record",
            "--pid",
            str(contestant.server.pid),
            "--rate=250",
            "--format=raw",
        ]
        command += [f"--duration={seconds:.0f}", f"--output={raw.name}", "--native" if native else "--nonblocking"]
        spy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            while spy.poll() is None:
                bounds = (f"-seconds={seconds + 2}", f"-longest={seconds + 2}")
                if operation.varied:
                    bench.vary(contestant, operation, *bounds)
                else:
                    asked = replace(operation, names=f"p{time.monotonic_ns()}") if operation.verb == "create" else operation
                    bench.ask(contestant, asked, *bounds)
            _, err = spy.communicate()
        finally:
            if spy.poll() is None:
                spy.terminate()
                spy.wait()
        if spy.returncode != 0:
            raise SampleFailed(f"py-spy: {err.strip()[-500:]}")
        return Path(raw.name).read_text()


def profile(keys: list[str], seconds: float, *, kind: str, revision: str, native: bool) -> dict[str, str]:
    made = {}
    variant = servers.OURS_MACHINES if kind == "vm" else servers.OURS_FLUNDERS
    with prepared([variant], rounds=1, quick=True, python=machine.interpreter(), revision=revision) as (_, bench):
        bench.seed("bench", "o", operations.BASE)
        bench.seed("watch", "o", operations.ASKED)
        chosen = [each for each in (*OPERATIONS, *VARIED) if each.key in keys]
        if any(each.many for each in chosen):
            bench.seed("many", "m", operations.MANY)
        for operation in chosen:
            try:
                bench.ready(operation)
                made[operation.key] = render(operation.key, *folded(record(bench, operation, seconds, native=native)))
            except SampleFailed as error:
                made[operation.key] = f"{operation.key} failed: {error}"
    return made


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.api.profile", description=__doc__)
    parser.add_argument("operations", nargs="+", choices=[*(each.key for each in (*OPERATIONS, *VARIED)), "all"])
    parser.add_argument("--seconds", type=float, default=8, help="how long to look at each (default 8)")
    parser.add_argument("--kind", choices=["flunder", "vm"], default="flunder")
    parser.add_argument("--revision", default="", help="as of this commit; default: the files as they are")
    parser.add_argument("--no-native", action="store_true", help="Python's own functions only")
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="directory for profile-OPERATION.txt")
    given = parser.parse_args()
    keys = [each.key for each in (*OPERATIONS, *VARIED)] if "all" in given.operations else given.operations
    try:
        made = profile(keys, given.seconds, kind=given.kind, revision=given.revision, native=not given.no_native)
    except (ProgramFailed, StepFailed) as error:
        sys.exit(str(error))
    given.output.mkdir(parents=True, exist_ok=True)
    for key, text in made.items():
        (given.output / f"profile-{key}.txt").write_text(text + "\n")
        print(text, end="\n\n")


if __name__ == "__main__":
    main()
