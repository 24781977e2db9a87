"""Groups of tests that may run beside each other (``--dist loadgroup``): those on the one test cluster, and all others.

Tests on the cluster wait more than they compute, for kubelets above all, so that another process of tests beside them costs little time.
Within a group the order is that of the files, as without groups.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name the group of every test."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group("cluster" if item.get_closest_marker("cluster") else "machine"))
