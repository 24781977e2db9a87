from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from apiserver.apis.virt.rights import trust

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("value", ["stolen", "", "yes", "false", "2026-11-22", "2026-11-22T12:00:00", "tomorrow"])
def test_malformed_revocation_time_revokes_everything(value: str) -> None:
    revocations = trust.revocations({"ca.crt": "…", "revoked.node1": value})

    assert revocations.is_revoked("node1")
    assert "node1 is revoked" in revocations.refusal("node1", NOW + timedelta(days=1000))
    assert not revocations.is_revoked("node2")
    assert revocations.refusal("node2", NOW) == ""


@pytest.mark.parametrize("value", ["2026-11-22T12:00:00Z", " 2026-11-22T13:00:00+01:00\n"])
def test_a_time_revokes_what_begins_before_it(value: str) -> None:
    revocations = trust.revocations({"revoked.node1": value})

    assert not revocations.is_revoked("node1")
    assert "before 2026-11-22T12:00:00Z" in revocations.refusal("node1", NOW - SECOND)
    assert revocations.refusal("node1", NOW) == ""


def test_other_keys_revoke_no_node() -> None:
    assert trust.revocations({"ca.crt": "stolen", "revoked": "node1", "node1": "revoked"}) == trust.Revocations()
