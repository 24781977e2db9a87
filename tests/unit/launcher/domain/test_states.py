from __future__ import annotations

import libvirt
import pytest

from apiserver.apis.virt.lifecycle.domainstates import DOMAIN_STATES
from launcher.domain import states
from launcher.domain.states import State


def test_numbers_are_those_of_libvirt() -> None:
    assert {state.name: state.value for state in State} == {
        name: getattr(libvirt, f"VIR_DOMAIN_{name}") for name in (state.name for state in State)
    }


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_reasons_are_those_of_libvirt(state: State) -> None:
    prefix = f"VIR_DOMAIN_{state.name}_"
    flags = (
        f"{prefix}ACPI",
        f"{prefix}GUEST",
        f"{prefix}INIT",
        f"{prefix}SIG",
        f"{prefix}PARA",
        f"{prefix}DEFAULT",
    )  # of virDomainShutdown
    known = {value for name, value in vars(libvirt).items() if name.startswith(prefix) and not name.startswith(flags)}
    assert known <= set(range(len(states.REASONS[state])))


@pytest.mark.parametrize(
    ("state", "constant", "word"),
    [
        (State.RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED, "migrated"),
        (State.PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER, "user"),
        (State.PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION, "migrating"),
        (State.PAUSED, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP, "starting up"),
        (State.SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN, "shutdown"),
        (State.SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_CRASHED, "crashed"),
        (State.SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED, "migrated"),
        (State.SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_DAEMON, "daemon"),
    ],
)
def test_the_words_that_decisions_hang_on_have_libvirts_numbers(state: State, constant: int, word: str) -> None:
    assert states.reason_of(state, constant) == word


def test_numbers_of_a_later_libvirt_are_tolerated() -> None:
    assert states.state_of(99) is State.NOSTATE
    assert states.reason_of(State.RUNNING, 99) == "unknown"


def test_libvirt_states_and_api_states_correspond() -> None:
    assert sorted(states.NAMES.values()) == sorted(DOMAIN_STATES)


@pytest.mark.parametrize(
    ("state", "reason", "arrived"),
    [
        (State.PAUSED, "migrating", False),
        (State.PAUSED, "starting up", False),
        (State.PAUSED, "user", True),
        (State.RUNNING, "migrated", True),
        (State.SHUTDOWN, "unknown", False),
        (State.CRASHED, "panicked", False),
        (State.PAUSED, "shutting down", False),
        (State.SHUTOFF, "failed", False),
    ],
)
def test_a_domain_has_arrived_when_its_processors_are_ours(state: State, reason: str, *, arrived: bool) -> None:
    assert states.has_arrived(state, reason) is arrived
