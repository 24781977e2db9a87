"""Order and groups of tests in several processes (``--dist loadscope``).

A group is a module, or several that cannot run at the same time: those that need the cluster alone, those of tests/host/launcher, and the
others of tests/host, which share this machine's devices.

Modules that share the cluster begin first, then those that have it alone, then all others, those of tests/component last; of each, the
longest first.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Final

import pytest

try:
    from xdist.scheduler import LoadScopeScheduling
except ModuleNotFoundError as error:
    raise pytest.UsageError("this Python has no pytest-xdist: run `make setup`, then .venv/bin/pytest") from error

from tests import order, parts
from tests.testbed import layout

# As in the Makefile, for the tests and the programs that they start.
_BYTECODE: Final = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(layout.cache() / "bytecode"))
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode, sys.pycache_prefix = False, _BYTECODE

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

pytest_plugins = ["tests.selection", "tests.measuring", "tests.flakes", "tests.host_turns"]


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives all tests of a group to one process; pytest 9.2 with pytest-xdist 3.8 ignores the marks of ``--dist loadgroup``."""

    def _split_scope(self, nodeid: str) -> str:
        return order.group(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        """Give a process its next group with its last test, not two tests earlier."""
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = order.rank(parts.seconds())
    items.sort(key=lambda item: rank(item.nodeid))


def pytest_collection_finish() -> None:
    """Leave modules and tests out of garbage collections, which took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.hookimpl(optionalhook=True)  # absent without pytest-xdist, as in tests/mutants
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    if config.getvalue("dist") != "loadscope":
        return None
    config.option.loadscopereorder = False  # keep groups in the order of the tests
    return Groups(config, log)
