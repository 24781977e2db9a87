"""Turns of test modules at the one cluster: most use it side by side, those that disturb it for everybody have it to themselves.

A module that ends processes of ours, cordons a node, upgrades or removes the release, or waits for what others' machines change, belongs
into ``ALONE``. Two processes of tests then never meet in it, however pytest-xdist gives modules away. Tests of this machine alone take
turns in the same way, so that one that failed can run again alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterator
from pathlib import Path

ALONE = frozenset(
    f"test_{name}"
    for name in (
        "bad_days",
        "bad_days_matrix",
        "contracts",
        "cuts",
        "drain",
        "drain_matrix",
        "etcd_move",
        "eviction_strategies",
        "first_session",
        "node_certificates",
        "node_certificates_matrix",
        "node_shutdown",
        "plugins",
        "takeover",
        "uninstall",
        "upgrade",
    )
)


class Turn:
    """A process's hold on the cluster, for one module of tests at a time: a lock of a file, shared or exclusive.

    A second file is locked by each process that waits for the first, so that the modules that come later do not overtake one that waits to
    be alone.
    """

    def __init__(self, lock: Path, alone: Collection[str] = ALONE) -> None:
        """Initialise without a hold; the lock's directory is made if need be. ``alone`` has the modules that meet no other one."""
        self._lock = lock
        self._alone = alone
        self._held: tuple[Path, int] | None = None

    def begin(self, module: Path) -> None:
        """Hold the cluster for a module, given by its file; waits as long as others must not be met."""
        if self._held is None or self._held[0] != module:
            self.end()
            self._hold(module, exclusive=module.stem in self._alone)

    @contextlib.contextmanager
    def alone(self, module: Path) -> Iterator[None]:
        """Hold the cluster for nothing but one test of a module, and after it for the rest of the module."""
        self.end()
        self._hold(module, exclusive=True)
        yield

    def _hold(self, module: Path, *, exclusive: bool) -> None:
        with one_at_a_time(self._lock.with_name(f"{self._lock.name}.next")):
            self._held = module, _locked(self._lock, exclusive=exclusive)

    def end(self) -> None:
        """Let the cluster go; without a hold, nothing happens."""
        if self._held is not None:
            os.close(self._held[1])
            self._held = None


@contextlib.contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Let one process of tests at a time do what is within; the others wait."""
    file = _locked(lock, exclusive=True)
    try:
        yield
    finally:
        os.close(file)


def _locked(lock: Path, *, exclusive: bool) -> int:
    """Return the descriptor of a locked file, which lets it go when it is closed, or when the process ends."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
    except BaseException:
        os.close(file)
        raise
    return file
