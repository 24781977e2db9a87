"""Turns of test modules at the one cluster: most share it, disruptive ones have it alone.

``ALONE`` lists modules that end our processes, cordon a node, upgrade the release, or wait for changes of others' VMs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from tests import booting
from tests.testbed import layout

ALONE = frozenset(
    f"test_{name}"
    for name in (
        "bad_days",
        "bad_days_matrix",
        "cuts",
        "drain",
        "drain_matrix",
        "etcd_move",
        "eviction_strategies",
        "first_session",
        "guardians",
        "hotplug_disks",
        "hotplug_interfaces",
        "node_certificates",
        "node_certificates_matrix",
        "node_loss",
        "node_protocol",
        "node_shutdown",
        "non_operational",
        "plugins",
        "suspend",
        "takeover",
        "uninstall",
        "upgrade",
    )
)


LOCK = layout.cache() / ".tests-of-the-cluster.lock"


class Turn:
    """A shared or exclusive file lock on the cluster for one test module at a time.

    A second file queues those that wait, so none overtakes one that waits for exclusive use.
    """

    def __init__(self, lock: Path, alone: Collection[str] = ALONE) -> None:
        self._lock = lock
        self._alone = alone
        self._held: tuple[Path, int] | None = None

    def begin(self, module: Path) -> None:
        if self._held is None or self._held[0] != module:
            self.end()
            self._hold(module, exclusive=module.stem in self._alone)

    @contextlib.contextmanager
    def during(self, module: Path, following: Path | None) -> Iterator[None]:
        """Have a turn during a test; keep it if the next test's module is the same."""
        self.begin(module)
        try:
            yield
        finally:
            booting.SLOTS.end()
            if following != module:
                self.end()

    @contextlib.contextmanager
    def alone(self, module: Path) -> Iterator[None]:
        """Have the cluster alone until the module ends."""
        self.end()
        self._hold(module, exclusive=True)
        yield

    def _hold(self, module: Path, *, exclusive: bool) -> None:
        with one_at_a_time(self._lock.with_name(f"{self._lock.name}.next")):
            self._held = module, _locked(self._lock, exclusive=exclusive)

    def end(self) -> None:
        if self._held is not None:
            os.close(self._held[1])
            self._held = None


@contextlib.contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    file = _locked(lock, exclusive=True)
    try:
        yield
    finally:
        os.close(file)


def _locked(lock: Path, *, exclusive: bool) -> int:
    lock.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
    except BaseException:
        os.close(file)
        raise
    return file
