import asyncio
from pathlib import Path

import pytest

from tests.faults.scenario import Scenario, differences
from tests.testbed import build


def test_a_difference_is_a_difference() -> None:
    one = {"metadata": {"namespace": "a", "name": "b", "resourceVersion": "3"}}
    assert differences({"a/b": one}, {"objects": {"a/b": one}, "folded": {"a/b": 3}}) == []
    assert differences({"a/b": one}, {"objects": {}, "folded": {"a/b": 3}}) == ["a/b is missing"]
    assert differences({}, {"objects": {"a/b": one}, "folded": {}}) == ["a/b is there and should not be"]
    assert len(differences({"a/b": one}, {"objects": {"a/b": {}}, "folded": {"a/b": 2}})) == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.sample(2, "faults between informers and etcd")
@pytest.mark.parametrize("seed", [1, 2])
def test_informers_hold_what_etcd_holds_whatever_fails(tmp_path: Path, seed: int, *, is_short: bool) -> None:
    build.program("etcd")
    summary = asyncio.run(Scenario(tmp_path, seed).play(30 if is_short else 60))
    print(summary)
    assert summary.rounds >= 2
    assert all(counts["added"] and counts["deleted"] for counts in summary.told.values())
