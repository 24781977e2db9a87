from __future__ import annotations

from pathlib import Path

import pytest

from tests.testbed import cluster, layout


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path))
    return tmp_path


def test_where_no_cluster_was_nothing_is_older(state: Path) -> None:
    (state / "logs").mkdir()
    assert not cluster.is_older()


def test_a_cluster_of_the_same_addresses_stays(state: Path) -> None:
    (state / "etcd").mkdir()
    cluster.keep_addresses()
    assert not cluster.is_older()


def test_a_cluster_from_before_addresses_were_kept_is_older(state: Path) -> None:
    (state / "etcd").mkdir()
    assert cluster.is_older()


def test_a_cluster_of_other_addresses_is_older(state: Path) -> None:
    (state / "etcd").mkdir()
    cluster.keep_addresses()
    (kept,) = state.glob("*.json")
    kept.write_text(kept.read_text().replace(layout.SERVICE_CIDRS[0], "10.97.0.0/16"))
    assert cluster.is_older()
