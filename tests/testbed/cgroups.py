"""The nodes' cgroups, in every hierarchy (version 1, version 2, or both)."""

import pathlib
import signal
import time
from collections.abc import Iterator

from tests.testbed import layout, processes

_ROOT = pathlib.Path("/sys/fs/cgroup")


def is_unified() -> bool:
    return (_ROOT / "cgroup.controllers").exists()


def _hierarchies() -> list[pathlib.Path]:
    return [_ROOT] if is_unified() else sorted(path for path in _ROOT.iterdir() if path.is_dir() and not path.is_symlink())


def of(node: layout.Node) -> Iterator[pathlib.Path]:
    return (hierarchy / node.name for hierarchy in _hierarchies())


def up() -> None:
    for node in layout.NODES:
        for path in of(node):
            path.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                # Version 1 starts with an empty set, and then no process can enter.
                if not is_unified() and (path / setting).exists() and not (path / setting).read_text().strip():
                    (path / setting).write_text((path.parent / setting).read_text())


def members(node: layout.Node) -> list[processes.Identity]:
    needle = f":/{node.name}/"
    found = []
    for identity in processes.everyone():
        try:
            content = pathlib.Path(f"/proc/{identity.pid}/cgroup").read_text()
        except OSError:
            continue
        if needle in content or f":/{node.name}\n" in content:
            found.append(identity)
    return found


def down() -> None:
    for node in layout.NODES:
        for identity in members(node):
            identity.send(signal.SIGKILL)
        for path in of(node):
            _remove(path)


def _remove(path: pathlib.Path) -> None:
    if not path.exists():
        return
    deadline = time.monotonic() + 10
    for child in sorted((entry for entry in path.rglob("*") if entry.is_dir()), key=lambda entry: len(entry.parts), reverse=True):
        _remove_one(child, deadline)
    _remove_one(path, deadline)


def _remove_one(path: pathlib.Path, deadline: float) -> None:
    while True:
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def leftovers() -> list[str]:
    return [f"cgroup {path}" for node in layout.NODES for path in of(node) if path.exists()]
