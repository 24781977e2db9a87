"""The documents say which form of a PodDisruptionBudget works for machines, and the error of the other form."""

from __future__ import annotations

from pathlib import Path

from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy

PAGE = Path(__file__).parents[3] / "docs/operating/migrations.md"
ERROR = f"{VIRTUAL_MACHINES.plural}.{VIRTUAL_MACHINES.group} does not implement the scale subresource"
"""The error of Kubernetes' disruption controller."""


def test_page_of_drains_says_which_budget_works() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())

    assert VirtualMachineStrategy().scaling is None
    assert ERROR in text
    assert "needs `minAvailable` as a number" in text
