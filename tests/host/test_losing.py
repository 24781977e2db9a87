from __future__ import annotations

import subprocess

import pytest

from tests.cuts import losing

pytestmark = [pytest.mark.host]


@pytest.mark.parametrize("rules", [*losing.RULES.values(), losing.ETCD_FROM_API, losing.from_storage(3260)])
def test_rules_of_a_loss_are_valid(rules: str) -> None:
    done = subprocess.run(["unshare", "--net", "nft", "-f", "-"], input=rules, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
