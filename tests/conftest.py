"""Order and groups of tests that run in several processes (``--dist loadscope``).

A group is a module. Modules that cannot run at the same time are one group: those that need the cluster to themselves, those of
tests/host/launcher, and the others of tests/host, which share devices of this machine.

Groups begin in this order: modules that share the cluster, the group that has it alone, and everything else. Tests on the cluster wait
more than they compute, so the tests of this machine fill the time of the other processes. Small groups at the end keep all processes busy.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.cluster import turns

if TYPE_CHECKING:
    from xdist.remote import Producer

pytest_plugins = ["tests.selection", "tests.flakes"]

_CLUSTER = "tests/cluster/"
_ALONE = "the cluster alone"
_HOST = "tests/host/"
_LAUNCHER = "tests/host/launcher/"
_COMPONENT = "tests/component/"


def _group(nodeid: str) -> str:
    """Return the group of a test: its module, or what stands for modules that cannot run at the same time."""
    module = nodeid.partition("::")[0]
    if module.startswith(_HOST):
        return _LAUNCHER if module.startswith(_LAUNCHER) else _HOST
    is_alone = module.startswith(_CLUSTER) and PurePosixPath(module).stem in turns.ALONE
    return _ALONE if is_alone else module


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives all tests of a group to one process. (The marks of ``--dist loadgroup`` do nothing with pytest 9.2 and pytest-xdist 3.8.)"""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)


def _turn(item: pytest.Item) -> int:
    """Return when a test's group begins: lower numbers first."""
    group = _group(item.nodeid)
    if group == _ALONE:
        return 1
    if group.startswith(_CLUSTER):
        return 0
    return 3 if group.startswith(_COMPONENT) else 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the groups in the order in which they begin."""
    items.sort(key=_turn)


@pytest.hookimpl(optionalhook=True)  # there is no such hook where pytest-xdist is switched off, as tests/mutants does
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Return the scheduler of ``--dist loadscope``; of all other ways pytest-xdist has its own."""
    if config.getvalue("dist") != "loadscope":
        return None
    config.option.loadscopereorder = False  # groups are given away in the order of the tests
    return Groups(config, log)
