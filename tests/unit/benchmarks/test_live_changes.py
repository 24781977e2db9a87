from __future__ import annotations

import copy
from typing import Any

import pytest

from apiserver.apis.virt.spec import live_changes
from apiserver.apis.virt.v1alpha1 import defaults
from benchmarks.live_changes import KINDS, machine
from launcher.protocol import messages


def as_stored(manifest: dict[str, Any]) -> dict[str, Any]:
    vm = copy.deepcopy(manifest)
    vm["metadata"] |= {"namespace": "ns", "uid": "u", "generation": 1}
    defaults.default_virtual_machine(vm)
    return vm


@pytest.mark.parametrize("name", KINDS)
def test_each_edit_is_one_that_a_running_guest_takes(name: str) -> None:
    vm, edited = as_stored(machine()), machine()
    KINDS[name].edit(edited["spec"]["domain"])
    assert edited != machine()
    vm["status"] = {
        "phase": "Running",
        "podUID": "p",
        "domain": {"liveChanges": list(messages.LIVE_CHANGES)},
        "running": {"generation": 1, "domain": vm["spec"]["domain"]},
    }
    vm["spec"] = as_stored(edited)["spec"]
    assert live_changes.rest(vm) == ()
