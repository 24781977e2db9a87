from __future__ import annotations

import pytest

from launcher.hypervisor.agents import Agents

GUEST = "default_testvm"


def test_a_domain_of_which_nothing_is_known_has_no_agent() -> None:
    assert not Agents().is_connected(GUEST)


@pytest.mark.parametrize("connected", [True, False])
def test_a_look_tells_of_a_domain_that_was_there_before(*, connected: bool) -> None:
    agents = Agents()
    agents.look(GUEST, lambda: connected)
    assert agents.is_connected(GUEST) is connected


@pytest.mark.parametrize("connected", [True, False])
def test_event_during_a_look_is_not_lost(*, connected: bool) -> None:
    agents = Agents()

    def look() -> bool:
        agents.take(GUEST, connected=connected)
        return not connected

    agents.look(GUEST, look)
    assert agents.is_connected(GUEST) is connected


def test_events_follow_a_look() -> None:
    agents = Agents()
    agents.look(GUEST, lambda: True)
    agents.take(GUEST, connected=False)
    assert not agents.is_connected(GUEST)


def test_another_connection_knows_nothing_of_the_last() -> None:
    agents = Agents()
    agents.take(GUEST, connected=True)
    agents.forget()
    assert not agents.is_connected(GUEST)
    agents.look(GUEST, lambda: True)
    assert agents.is_connected(GUEST)
