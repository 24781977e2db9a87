from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta import decoding
from apiserver.apis.virt.spec import guestinfo
from apiserver.apis.virt.spec.guestinfo import Items
from apiserver.apis.virt.v1alpha1.guestinfo import VirtualMachineGuestInfo
from apiserver.endpoints import discovery
from apiserver.registry.virt.handlers import Handlers
from apiserver.registry.virt.reads import GuestInfo
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["userName", "disks", "name", "x"]), inner, max_size=4),
    max_leaves=12,
)


def full(shape: Any) -> Any:
    match shape:
        case Items():
            return [full(shape.of)]
        case guestinfo.Text():
            return "x" * shape.limit
        case guestinfo.Number():
            return guestinfo.MAX_INTEGER
        case guestinfo.Moment():
            return "2126-01-01T00:00:00Z"
        case guestinfo.Address():
            return "fd00::1"
        case _:
            return {field: full(of) for field, of in shape.items()}


def test_model_has_exactly_the_passed_fields() -> None:
    given_all = full(guestinfo.FIELDS)

    assert guestinfo.bounded(given_all) == given_all
    assert decoding.read(VirtualMachineGuestInfo, json.loads(json.dumps(given_all))) == ((), ())
    own = {each.alias or name for name, each in VirtualMachineGuestInfo.model_fields.items()} - {"apiVersion", "kind", "metadata"}
    assert own == set(guestinfo.FIELDS)


@given(st.dictionaries(st.sampled_from(sorted(guestinfo.FIELDS)), ANY))
def test_model_accepts_any_bounded_node_answer(said: dict[str, Any]) -> None:
    assert decoding.read(VirtualMachineGuestInfo, guestinfo.bounded(said)) == ((), ())


@pytest.mark.parametrize("text", ["", "[]", "1", "{", "[" * 100_000])
def test_non_object_answers_are_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own among them
        guestinfo.parse(text)


def test_discovery_says_that_it_can_be_read() -> None:
    handlers = Handlers(None, None, None)  # type: ignore[arg-type]  # nobody is asked
    strategy = VirtualMachineStrategy(reads={GuestInfo.name: GuestInfo(handlers)})

    (found,) = [each for each in discovery.subresources(strategy) if each[0] == "guestinfo"]
    assert (found[1].kind, found[2]) == ("VirtualMachineGuestInfo", ["get"])
