from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition
from controller.reconcilers.actions import Emit, Requeue, WriteStatus
from controller.reconcilers.pods import pod_state, sandboxes
from controller.reconcilers.pods.networks import Definition, Found
from controller.reconcilers.pods.sandboxes import fault, is_to_read, trim_event
from controller.reconcilers.settings import Settings, Times
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.virtual_machine_plan import plan
from tests.unit.controller.reconcilers.builders import a_pod, a_vm, an_attempt
from tests.unit.controller.reconcilers.pods.test_networks import DOMAIN, pending

BOUND = datetime(2026, 1, 1, tzinfo=UTC)
LOOKS_AGAIN = sandboxes.LOOKS_AGAIN.format(what="virtual machine starts")
LATER = "2026-01-01T00:10:00Z"
DEFINITIONS = (Definition("default/lan", "lan"), Definition("default/wan", "outside"))
SANDBOX = "c3" * 32
KUBELET = (
    f'Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "{SANDBOX}": plugin type="multus" '
    f'name="networks" failed (add): '
)
NO_PLUGIN = 'failed to find plugin "nosuch" in path [/opt/cni/bin]'
NO_ADDRESS = "failed to allocate for range 0: no IP addresses available in range set: 192.168.8.1-192.168.8.2"


def an_event(words: str, last: str = LATER) -> dict[str, Any]:
    return trim_event({"message": words, "lastTimestamp": last})


def of_network(name: str, words: str) -> str:
    pod = "default/virt-launcher-testvm-abcde/6b0a1c1e-0000-4000-8000-000000000002"
    return f'{KUBELET}[{pod}:{name}]: error adding container to network "{name}": {words}'


def told(*events: dict[str, Any], mounts: tuple[dict[str, Any], ...] = ()) -> str:
    found = fault(DEFINITIONS, "node1", events, mounts)
    if found is None:
        return ""
    assert found[0] == "NetworkNotUsable"
    assert found[1].endswith("; the node retries, and the virtual machine starts once that is fixed")
    return found[1].removesuffix(f"; {LOOKS_AGAIN}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (of_network("lan", NO_PLUGIN), f"network default/lan: {NO_PLUGIN}"),
        (of_network("outside", NO_ADDRESS), f"network default/wan: {NO_ADDRESS}"),
        (of_network("of-the-cluster", "no such bridge"), "a network: no such bridge"),
        (
            f"{KUBELET}Multus: [default/x/y]: cannot find a network-attachment-definition (wan) in namespace (default)",
            "network default/wan: Multus: [default/x/y]: cannot find a network-attachment-definition (wan) in namespace (default)",
        ),
        ("the runtime is not ready", "a network: the runtime is not ready"),
        (
            of_network("lan", f'netns "/run/netns/cni-6b0a1c1e-0000-4000-8000-000000000003" of {SANDBOX}:\n\x1b[31mgone'),
            'network default/lan: netns "/run/netns/cni-…" of …: | [31mgone',
        ),
    ],
)
def test_a_refusal_is_told_with_its_network_in_one_clean_line(words: str, said: str) -> None:
    assert told(an_event(words)) == f"according to the pod's events, node node1 cannot connect the pod to {said}"


def test_sandbox_message_is_bounded() -> None:
    found = fault(DEFINITIONS, "node1", (an_event(of_network("lan", "x" * 5000)),), ())
    assert found is not None
    assert len(found[1]) <= pod_state.MAX_MESSAGE
    assert found[1].endswith(f"{'x' * 200}…; {LOOKS_AGAIN}")


def test_newest_event_counts_and_ties_go_to_the_last() -> None:
    old, new = an_event(of_network("lan", "first"), "2026-01-01T00:00:00Z"), an_event(of_network("lan", "then"))
    for events in ((old, new), (new, old), (an_event(of_network("lan", "first")), new)):
        assert told(*events).endswith(": then")
    assert told(an_event("no time at all", "nonsense"), new).endswith(": then")
    assert told() == ""


def test_a_kubelet_that_is_at_the_volumes_is_not_at_the_networks() -> None:
    event = an_event(of_network("lan", NO_PLUGIN))
    assert told(event, mounts=({"message": "", "last": "2026-01-01T00:10:01Z"},)) == ""
    for before in (LATER, "2026-01-01T00:09:59Z"):
        assert told(event, mounts=({"message": "", "last": before},)) != ""


@pytest.mark.parametrize(
    ("vm", "pod", "after", "looks"),
    [
        (a_vm(domain=DOMAIN), pending(), 2, True),
        (a_vm(domain=DOMAIN), pending(), 1, False),
        (a_vm(domain=DOMAIN), pending(), -1, True),
        (a_vm(), pending(), 2, False),
        (a_vm(domain=DOMAIN), a_pod(), 2, False),
    ],
    ids=["waits", "too early", "another clock", "without networks", "runs"],
)
def test_events_are_read_while_a_networked_pod_has_no_sandbox(vm: dict[str, Any], pod: dict[str, Any], after: int, *, looks: bool) -> None:
    assert is_to_read(vm, pod, BOUND + timedelta(seconds=after)) == looks


def seen(vm: dict[str, Any], pod: dict[str, Any], *events: dict[str, Any]) -> Observed:
    now = BOUND + timedelta(seconds=20)
    return Observed(vm=vm, pods=(pod,), claims={}, now=now, settings=Settings("x"), networks=Found((), DEFINITIONS), sandbox_events=events)


def test_sandbox_fault_is_reported_once_and_then_cleared() -> None:
    vm = a_vm(phase="Scheduling", attempts=[an_attempt()], domain=DOMAIN)
    vm["status"]["conditions"] = [{"type": "DisksReady", "status": "False", "reason": "SecretNotFound"}]
    event = an_event(of_network("lan", NO_PLUGIN))
    written, emitted, again = plan(seen(vm, pending(), event))
    assert isinstance(written, WriteStatus)
    assert written.status["phase"] == "Scheduling"
    for kind in ("Ready", "NetworkReady"):
        found = condition(written.status["conditions"], kind) or {}
        assert (found["status"], found["reason"]) == ("False", "NetworkNotUsable")
        assert "cannot connect the pod to network default/lan" in found["message"]
    assert (condition(written.status["conditions"], "DisksReady") or {})["status"] == "True"
    assert isinstance(emitted, Emit)
    assert emitted.reason == "NetworkNotUsable"
    assert again == Requeue(Times().networks)
    vm["status"] = written.status
    assert plan(seen(vm, pending(), event)) == (Requeue(Times().networks),)
    later = next(each.status for each in plan(seen(vm, a_pod())) if isinstance(each, WriteStatus))
    assert condition(later["conditions"], "NetworkReady") is None
