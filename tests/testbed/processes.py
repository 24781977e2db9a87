"""The cluster's long-running programs: started once, identified by pid and start time, ended reliably.

The starting shell writes the record just before it becomes the program, so the program never runs unrecorded.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.testbed import layout, progress

_RECORD_AND_BECOME = (
    'record=$1; shift; set -e; printf "%s %s\\n" $$ "$(cut -d" " -f22 /proc/$$/stat)" >"$record.new"; mv "$record.new" "$record"; exec "$@"'
)

# Go programs collect garbage a quarter as often (https://go.dev/doc/gc-guide#GOGC).
_FEW_COLLECTIONS = {"GOGC": "400"}

# They outlive this process, but while it lives it must reap them.
_ours: list["subprocess.Popen[bytes]"] = []


@dataclasses.dataclass(frozen=True)
class Identity:
    pid: int
    start_ticks: int

    def is_alive(self) -> bool:
        stat = _stat(self.pid)
        return stat is not None and stat[0] != "Z" and int(stat[19]) == self.start_ticks

    def send(self, number: signal.Signals) -> None:
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _stat(pid: int) -> list[str] | None:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def everyone() -> Iterator[Identity]:
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
            yield Identity(int(entry.name), int(stat[19]))


def children(parent: Identity) -> list[Identity]:
    return [identity for identity in everyone() if (stat := _stat(identity.pid)) and int(stat[1]) == parent.pid]


def _directory() -> pathlib.Path:
    return layout.state() / "processes"


def _record(name: str) -> pathlib.Path:
    return _directory() / f"{name}.pid"


def find(name: str) -> Identity | None:
    try:
        pid, ticks = _record(name).read_text().split()
        identity = Identity(int(pid), int(ticks))
    except (OSError, ValueError):
        return None
    return identity if identity.is_alive() else None


def names() -> list[str]:
    return sorted(path.stem for path in _directory().glob("*.pid"))


def log_of(name: str) -> pathlib.Path:
    return layout.logs() / f"{name}.log"


def ensure(name: str, arguments: Sequence[str | os.PathLike[str]], *, environment: Mapping[str, str] | None = None) -> Identity:
    """Return the process ``name``; start it with ``arguments`` unless it runs, and first end one with other ``arguments``.

    Another ``environment`` ends none. Raises StepFailed if its program is missing, or it ends at once.
    """
    words = [os.fspath(argument) for argument in arguments]
    command = _directory() / f"{name}.json"
    wanted = json.dumps(words)
    running = find(name)
    if running is not None:
        if command.exists() and command.read_text() == wanted:
            return running
        end([name])
    if shutil.which(words[0]) is None:
        raise progress.StepFailed(f"cannot start {name}: the program {words[0]} is missing")
    _directory().mkdir(parents=True, exist_ok=True)
    layout.logs().mkdir(parents=True, exist_ok=True)
    _record(name).unlink(missing_ok=True)
    command.write_text(wanted)
    with log_of(name).open("ab") as log:
        process = subprocess.Popen(
            ["sh", "-c", _RECORD_AND_BECOME, "sh", os.fspath(_record(name)), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env={**_FEW_COLLECTIONS, **os.environ, **(environment or {})},
        )
    _ours.append(process)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (identity := find(name)) is not None:
            return identity
        if process.poll() is not None:
            break
        time.sleep(0.01)
    raise progress.StepFailed(f"{name} ended at once; log {log_of(name)}:\n{progress.last_lines(log_of(name))}")


def end(wanted: Iterable[str], *, grace_seconds: float = 10) -> None:
    chosen = list(wanted)
    end_all([identity for name in chosen if (identity := find(name)) is not None], grace_seconds=grace_seconds)
    _ours[:] = [process for process in _ours if process.poll() is None]
    for name in chosen:
        _record(name).unlink(missing_ok=True)
        (_directory() / f"{name}.json").unlink(missing_ok=True)


def end_all(identities: Sequence[Identity], *, grace_seconds: float) -> None:
    targets = [*identities, *(child for identity in identities if _is_wrapper(identity) for child in children(identity))]
    for target in targets:
        if not _is_wrapper(target):
            target.send(signal.SIGTERM)
    if not _wait_for_end(targets, grace_seconds):
        for target in targets:
            target.send(signal.SIGKILL)
        if not _wait_for_end(targets, 60):
            left = ", ".join(str(target.pid) for target in targets if target.is_alive())
            raise progress.StepFailed(f"processes {left} do not end, not even by SIGKILL")


def _is_wrapper(identity: Identity) -> bool:
    try:
        return pathlib.Path(f"/proc/{identity.pid}/comm").read_text().strip() in {"nsenter", "unshare"}
    except OSError:
        return False


def _wait_for_end(identities: Sequence[Identity], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(identity.is_alive() for identity in identities):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
