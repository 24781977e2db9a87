"""Judges requests by validating policies of the chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.unit.apiserver.admission.policy.test_policies import World

_POLICY: Final = "ValidatingAdmissionPolicy"
_BINDING: Final = "ValidatingAdmissionPolicyBinding"


def world(objects: Iterable[Mapping[str, Any]], *names: str) -> World:
    made = World("validating")
    found = [each for each in objects if each["kind"] in {_POLICY, _BINDING} and each["metadata"]["name"] in names]
    assert len(found) == 2 * len(names)
    for each in found:
        change = made.source._policy_changed if each["kind"] == _POLICY else made.source._binding_changed
        change(None, dict(each))
    return made
