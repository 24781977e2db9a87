"""Groups of tests that run beside each other (``--dist loadscope``): modules of the test cluster, and tests of this machine alone.

Tests on the cluster wait more than they compute, for kubelets above all, so that every process begins with modules of theirs. Those that
have the cluster to themselves are one group: while one process runs them, the others could only wait, and run the tests that need no
cluster. Within a group the order is that of the files, as without groups.
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
_FIRST = ("tests/host/launcher/", "tests/")
"""Two of the groups of tests that need no cluster, by the beginnings of their names: while they run, the third process can begin with the
cluster alone, because both others have ended what they had to do on it."""
_LATER = ("tests/component/apiserver/", "tests/unit/apiserver/", "tests/component/", "tests/unit/")
"""The others. Of several beginnings of a test's name the first one counts."""


def _group(nodeid: str) -> str:
    """Return the group of a test; modules of the cluster that run side by side are a group each."""
    module = nodeid.partition("::")[0]
    if module.startswith(_CLUSTER):
        return _ALONE if PurePosixPath(module).stem in turns.ALONE else module
    return next(each for each in (*_LATER, *_FIRST) if module.startswith(each))


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives all tests of a group to one process. (The marks of ``--dist loadgroup`` do nothing with pytest 9.2 and pytest-xdist 3.8.)"""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)


def _turn(item: pytest.Item) -> int:
    """Return which groups begin before the test's, of which modules that use the cluster side by side have none."""
    group = _group(item.nodeid)
    order = (*_FIRST, _ALONE, *_LATER)
    return order.index(group) + 1 if group in order else 0


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
