"""Order and groups of tests in several processes (``--dist loadscope``).

A group is a module, or several that cannot run at the same time: those that need the cluster alone, those of tests/host/launcher, and the
others of tests/host, which share this machine's devices.

Modules that share the cluster begin first, then those that have it alone, then everything else. Cluster tests mostly wait, so other tests
fill the time. Small groups at the end keep all processes busy.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.cluster import turns

if TYPE_CHECKING:
    from xdist.remote import Producer

pytest_plugins = ["tests.parts", "tests.selection", "tests.flakes"]

_CLUSTER = "tests/cluster/"
_ALONE = "the cluster alone"
_HOST = "tests/host/"
_LAUNCHER = "tests/host/launcher/"
_COMPONENT = "tests/component/"


def _group(nodeid: str) -> str:
    """Return a test's group: its module, or a name for several."""
    module = nodeid.partition("::")[0]
    if module.startswith(_HOST):
        return _LAUNCHER if module.startswith(_LAUNCHER) else _HOST
    is_alone = module.startswith(_CLUSTER) and PurePosixPath(module).stem in turns.ALONE
    return _ALONE if is_alone else module


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives all tests of a group to one process.

    (pytest 9.2 with pytest-xdist 3.8 ignores the marks of ``--dist loadgroup``.)
    """

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)


def _turn(item: pytest.Item) -> int:
    """Return the rank of a test's group: lower numbers first."""
    group = _group(item.nodeid)
    if group == _ALONE:
        return 1
    if group.startswith(_CLUSTER):
        return 0
    return 3 if group.startswith(_COMPONENT) else 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)


@pytest.hookimpl(optionalhook=True)  # the hook is absent without pytest-xdist, as in tests/mutants
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    if config.getvalue("dist") != "loadscope":
        return None
    config.option.loadscopereorder = False  # keep groups in the order of the tests
    return Groups(config, log)
