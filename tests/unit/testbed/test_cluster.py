from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed import cluster, layout, processes


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path))
    return tmp_path


def test_where_no_cluster_was_nothing_is_replaced(state: Path) -> None:
    (state / "logs").mkdir()
    assert not cluster.fault()


@pytest.fixture
def running(state: Path) -> Iterator[Path]:
    (state / "etcd").mkdir()
    processes.ensure("etcd", ["sleep", "60"])
    yield state
    processes.end(["etcd"], grace_seconds=0)


def test_a_running_cluster_of_the_same_addresses_stays(running: Path) -> None:
    cluster.keep_addresses()
    assert not cluster.fault()


def test_a_cluster_that_does_not_run_is_replaced(running: Path) -> None:
    cluster.keep_addresses()
    processes.end(["etcd"], grace_seconds=0)
    assert cluster.fault() == "does not run"


def test_a_cluster_from_before_addresses_were_kept_is_replaced(running: Path) -> None:
    assert cluster.fault() == "has other addresses"


def test_a_cluster_of_other_addresses_is_replaced(running: Path) -> None:
    cluster.keep_addresses()
    kept = running / "addresses.json"
    kept.write_text(kept.read_text().replace(layout.SERVICE_CIDRS[0], "10.97.0.0/16"))
    assert cluster.fault() == "has other addresses"
