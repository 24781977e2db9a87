from __future__ import annotations

from apiserver.apis.meta.objects import NamespacedName
from controller.reconcilers.applying import REFUSED_SECONDS
from controller.reconcilers.virtual_machines.refusals import Refusals

VM = NamespacedName("ns", "testvm")


def test_each_refusal_lasts_its_own_time() -> None:
    now = 0.0
    known = Refusals(lambda: now)
    assert (known.messages(VM), known.left(VM)) == ({}, None)
    known.add(VM, {"pod-a": "no"})
    now = 5.0
    known.add(VM, {"pod-b": "never"})
    assert known.messages(VM) == {"pod-a": "no", "pod-b": "never"}
    assert known.left(VM) == REFUSED_SECONDS - 5
    now = REFUSED_SECONDS
    assert known.messages(VM) == {"pod-b": "never"}
    assert known.left(VM) == 5
    assert known.messages(NamespacedName("ns", "other")) == {}


def test_machine_that_is_gone_leaves_nothing() -> None:
    known = Refusals(lambda: 0.0)
    known.add(VM, {"pod-a": "no"})
    known.forget(VM)
    assert known.messages(VM) == {}
