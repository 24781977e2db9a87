"""The worst cases of docs/faults.md, one cut each. ``make test-faults`` plays all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cuts import description
from tests.cuts.__main__ import play_one
from tests.cuts.playing import Player, playing
from tests.damage import never_again
from tests.testbed import kubectl as testbed_kubectl

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="processes and links are cut in the process table of this machine"),
]


@pytest.fixture(scope="module")
def player(kubeconfig: Path, testguest: None) -> Iterator[Player]:
    with playing(kubeconfig) as found:
        yield found


@pytest.mark.sample(12, "cuts of a migration")  # a case takes a minute of the cluster alone
@pytest.mark.parametrize("name", description.WORST)
def test_no_data_are_lost_none_runs_twice_and_nothing_hangs(player: Player, name: str) -> None:
    (case,) = description.chosen(name)

    found = play_one(player, case)

    with never_again("two QEMU"):
        assert not [each for each in found.faults if "ran two" in each], found.text
    with never_again("a lost write"):
        assert not [each for each in found.faults if "lost data" in each], found.text
    assert not found.faults, found.text
