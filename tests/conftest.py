"""Groups of tests that run beside each other (``--dist loadscope``): those on the one test cluster, and all others.

Tests on the cluster wait more than they compute, for kubelets above all, so that another process of tests beside them costs little time.
Within a group the order is that of the files, as without groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives all tests of a group to one process. (The marks of ``--dist loadgroup`` do nothing with pytest 9.2 and pytest-xdist 3.8.)"""

    def _split_scope(self, nodeid: str) -> str:
        return "cluster" if nodeid.startswith("tests/cluster/") else "machine"


@pytest.hookimpl(optionalhook=True)  # there is no such hook where pytest-xdist is switched off, as tests/mutants does
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Return the scheduler of ``--dist loadscope``; of all other ways pytest-xdist has its own."""
    return Groups(config, log) if config.getvalue("dist") == "loadscope" else None
