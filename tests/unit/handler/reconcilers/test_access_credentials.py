from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition
from handler.reconcilers.guests.access_credentials import with_propagation
from launcher.protocol.messages import AuthorizedKeysStatus, Status

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_vm(*methods: str) -> dict[str, Any]:
    elements = [
        {"sshPublicKey": {"source": {"secret": {"secretName": "s"}}, "propagationMethod": {each: {"users": ["u"]}}}} for each in methods
    ]
    return {"metadata": {"generation": 3}, "spec": {"accessCredentials": elements}, "status": {}}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (AuthorizedKeysStatus(), ("False", "WaitingForAgent")),
        (AuthorizedKeysStatus("failed", "no\nuser " + "x" * 1000), ("False", "Failed")),
        (AuthorizedKeysStatus("synchronized"), ("True", "Synchronized")),
    ],
)
def test_key_propagation_is_reported_as_a_condition(keys: AuthorizedKeysStatus, expected: tuple[str, str]) -> None:
    status = with_propagation(a_vm("noCloud", "qemuGuestAgent"), {"conditions": []}, Status(1, authorized_keys=keys), NOW)
    found = condition(status["conditions"], "AccessCredentialsSynchronized")
    assert found is not None
    assert (found["status"], found["reason"], found["observedGeneration"]) == (*expected, 3)
    assert len(found["message"]) <= 256
    assert "\n" not in found["message"]


def test_no_condition_without_agent_keys_or_for_an_ending_guest() -> None:
    for vm, status in ((a_vm("noCloud"), Status(1)), (a_vm(), Status(1)), (a_vm("qemuGuestAgent"), Status(1, stopping=True))):
        assert with_propagation(vm, {"a": 1}, status, NOW) == {"a": 1}
