from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.reconcilers.nodes.node_reports import NodeReports, Unreachable
from controller.reconcilers.pods import liveness
from controller.reconcilers.pods.absences import KUBELET_SECONDS, Absences, lingering_seconds
from controller.reconcilers.pods.evidence import Timed, gather
from controller.reconcilers.pods.liveness import ALIVE, LOST, Absent, Decider, Evidence, Over, Unknown, Witness, may_run, verdict
from tests.unit.controller.reconcilers.builders import a_pod, a_vm

DETECTION_SECONDS = 55.0
"""Time until a cut off kubelet counts as silent: CUT_OFF_SECONDS in absences leaves room."""
NODES = st.sampled_from(["", "node1", "node2"])
STATES = st.sampled_from([{"running": {}}, {"waiting": {"reason": "ContainerCreating"}}, {"terminated": {"exitCode": 0}}, {}])


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    pod = a_pod(
        phase=draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"])),
        node=draw(NODES),
        deleting=draw(st.booleans()),
    )
    pod["status"]["containerStatuses"] = [{"name": "compute", "state": each} for each in draw(st.lists(STATES, max_size=2))]
    return pod


@st.composite
def evidence(draw: st.DrawFn) -> Evidence:
    silent = draw(st.frozensets(st.sampled_from(["node1", "node2"])))
    mute = draw(st.frozensets(st.sampled_from(["node1", "node2"]))) - silent
    off = draw(st.frozensets(st.sampled_from(["node1", "node2"]))) & silent
    missing = draw(st.frozensets(st.sampled_from(["node1", "node2"]))) & off
    before = draw(st.frozensets(st.sampled_from(["node1", "node2"]))) & silent - off
    return Evidence(Unreachable(silent, {node: draw(st.sampled_from([0.5, 17.0])) for node in sorted(mute)}, missing, off, before))


ABSENT = st.builds(
    Absent, st.just("pod"), st.just("uid"), NODES, st.sampled_from([0.0, 0.25, 50.0]), st.sampled_from(["", "move"]), st.booleans()
)


def has_ended(pod: dict[str, Any]) -> bool:
    """Return whether an existing pod's status alone shows its end: a final phase, and no running container."""
    runs = any(each["state"].get("running") is not None for each in pod["status"]["containerStatuses"])
    return pod["status"]["phase"] in ("Succeeded", "Failed") and not runs


@given(pods(), evidence())
def test_present_pod_is_over_by_its_kubelet_or_a_taint(pod: dict[str, Any], known: Evidence) -> None:
    is_fenced = pod["spec"]["nodeName"] in known.unreachable.off - known.unreachable.missing
    assert (verdict(pod, known) == Over(Witness.KUBELET)) is has_ended(pod)
    assert (verdict(pod, known) == Over(Witness.PERSON)) is (is_fenced and not has_ended(pod))
    assert may_run(pod, known) is not (has_ended(pod) or is_fenced)
    assert may_run(pod) is not has_ended(pod)


@given(pods(), evidence())
def test_a_pod_that_may_run_is_alive_unless_its_node_is_silent(pod: dict[str, Any], known: Evidence) -> None:
    node, unreachable, found = pod["spec"]["nodeName"], known.unreachable, verdict(pod, known)
    if has_ended(pod) or node in unreachable.fenced:
        return
    assert (found == LOST) is (node in unreachable.whole)
    assert (found == ALIVE) is (node not in unreachable.whole and node not in unreachable.of_kubelet)
    if node in unreachable.of_kubelet:
        assert found == Unknown(Decider.KUBELET, unreachable.of_kubelet[node])


@given(ABSENT, evidence())
def test_missing_pod_is_over_after_its_time_or_by_a_person(pod: Absent, known: Evidence) -> None:
    found, unreachable = verdict(pod, known), known.unreachable
    if pod.node in unreachable.whole:
        by_person = pod.went_with_node and pod.node not in unreachable.fenced_before
        assert found == (Over(Witness.PERSON) if by_person or pod.node in unreachable.off else LOST)
    elif pod.node in unreachable.of_kubelet:
        assert found == Unknown(Decider.KUBELET, unreachable.of_kubelet[pod.node])
    else:
        assert found == (Unknown(Decider.TIME, pod.lingers) if pod.lingers else Over(Witness.TIME))


def test_a_guardians_word_counts_only_for_pods_of_its_node() -> None:
    pod, lost = a_pod(phase="Running", node="node1"), Unreachable(frozenset({"node1"}))
    uid = pod["metadata"]["uid"]
    absent = Absent("pod", uid, "node1", 50.0)
    for sealed, over in (({"node1": frozenset({uid})}, True), ({"node2": frozenset({uid})}, False), ({"node1": frozenset({"x"})}, False)):
        known = Evidence(lost, (absent,), sealed)
        expected = Over(Witness.GUARDIAN) if over else LOST
        assert verdict(pod, known) == verdict(absent, known) == expected
        loss = liveness.Loss("node1", Witness.GUARDIAN) if over else None
        assert liveness.loss_of(pod, known) == liveness.loss_of(None, known) == loss


def test_deletion_after_an_earlier_boots_taint_proves_nothing() -> None:
    """Kubernetes itself deletes these pods by force."""
    gone, node = Absent("pod", "uid", "node1", 0.0, went_with_node=True), frozenset({"node1"})
    by_person, by_kubernetes = Evidence(Unreachable(node), (gone,)), Evidence(Unreachable(node, fenced_before=node), (gone,))
    assert liveness.loss_of(None, by_person) == liveness.Loss("node1", Witness.PERSON)
    assert verdict(gone, by_kubernetes) == LOST
    assert liveness.loss_of(None, by_kubernetes) is None


def test_end_that_the_kubelet_or_time_shows_is_no_loss() -> None:
    assert liveness.loss_of(a_pod(phase="Failed", exit_code=1), liveness.NOTHING) is None
    assert liveness.loss_of(None, Evidence(absent=(Absent("pod", "uid", "node1", 0.0),))) is None


def test_next_look_is_when_the_verdict_says_or_soon() -> None:
    assert liveness.seconds_to_next_look(Unknown(Decider.TIME, 3.0)) == 3.0
    assert liveness.seconds_to_next_look(LOST) == liveness.LOST_LOOK_SECONDS


def test_missing_pod_without_a_status_reference_is_over() -> None:
    assert verdict(None) == Over(Witness.ABSENCE)
    assert not may_run(None)


@dataclass
class World:
    now: float = 0.0
    runs: bool = True
    is_there: bool = True
    is_unreachable: bool = False
    grace: float = 30.0
    must_end_at: float | None = None
    """Latest time at which the kubelet, after it saw the deletion, ends the containers."""
    absences: Absences = field(init=False)
    vm: dict[str, Any] = field(default_factory=a_vm)
    pod: dict[str, Any] = field(default_factory=a_pod)

    def __post_init__(self) -> None:
        self.absences = Absences(lambda: self.now)
        self.pod["spec"]["terminationGracePeriodSeconds"] = self.grace

    def look(self) -> liveness.Verdict:
        unreachable = Unreachable(of_kubelet={"node1": 17.0}) if self.is_unreachable else Unreachable()
        if self.is_there:
            self.absences.present(self.vm, self.pod)
            return verdict(self.pod, Evidence(unreachable))
        absent = Absent("pod", self.pod["metadata"]["uid"], "node1", self.absences.left(self.vm, self.pod["metadata"]["uid"], self.grace))
        if self.is_unreachable:
            self.absences.hold(self.vm)
        return verdict(absent, Evidence(unreachable, (absent,)))

    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds
        if self.must_end_at is not None and self.now >= self.must_end_at:
            self.runs = False

    def end_container(self) -> None:
        self.runs = False

    def report_end(self) -> None:
        if self.is_there and not self.is_unreachable and not self.runs:
            self.pod["status"] = {"phase": "Failed", "containerStatuses": [{"name": "compute", "state": {"terminated": {"exitCode": 1}}}]}

    def call_failed(self) -> None:
        if self.is_there and self.is_unreachable:
            self.pod["status"]["phase"] = "Failed"

    def delete_by_force(self) -> None:
        if self.is_there:
            self.is_there = False
            self._hear()

    def change_reachability(self) -> None:
        self.is_unreachable = not self.is_unreachable
        if not self.is_there:
            self._hear()
        self.look()

    def _hear(self) -> None:
        """Set ``must_end_at``, by when the kubelet ends a deleted pod's containers; None for an unreachable kubelet."""
        self.must_end_at = None if self.is_unreachable else self.now + self.grace + KUBELET_SECONDS


@pytest.mark.parametrize("seed", range(300))
def test_no_pod_that_runs_is_ever_over(seed: int) -> None:
    """The kubelet ends containers as late as possible; passes come at any time, and after each change of its silence."""
    choose, world = random.Random(seed), World()
    events = (world.end_container, world.report_end, world.call_failed, world.delete_by_force, world.change_reachability)
    for _ in range(60):
        if choose.random() < 0.4:
            choose.choice(events)()
        else:
            world.let_time_pass(choose.choice([0.5, 5.0, 20.0, 44.0]))
        found = world.look()
        assert not (world.runs and isinstance(found, Over)), (seed, world)
    world.look()
    world.let_time_pass(lingering_seconds(world.grace))
    assert isinstance(world.look(), Over) or world.is_there or world.is_unreachable


@pytest.mark.parametrize("lingers", [0.0, 50.0])
def test_a_silent_kubelet_ends_no_pod_that_is_gone(lingers: float) -> None:
    mute = Evidence(Unreachable(of_kubelet={"node1": 17.0}))
    assert verdict(Absent("pod", "uid", "node1", lingers), mute) == Unknown(Decider.KUBELET, 17.0)
    assert verdict(a_pod()) == liveness.Alive()


@dataclass
class CutNode:
    """A node that is cut off with its virt-handler, and what virt-controller and an honest person learn about it."""

    grace: float
    now: float = 0.0
    runs: bool = True
    is_there: bool = True
    cut_at: float | None = None
    called_off: bool = False
    reported: bool = False
    """The machine's status says NodeUnreachable."""
    must_end_at: float | None = None
    vm: dict[str, Any] = field(default_factory=a_vm)
    pod: dict[str, Any] = field(default_factory=a_pod)

    def __post_init__(self) -> None:
        self.absences = Absences(lambda: self.now)
        self.pod["spec"]["terminationGracePeriodSeconds"] = self.grace

    @property
    def is_lost(self) -> bool:
        return self.cut_at is not None and self.now >= self.cut_at + DETECTION_SECONDS

    def sealed_pods(self) -> dict[str, frozenset[str]]:
        return {}

    def promised_pods(self, node: str) -> None:
        return None

    def is_virtual(self, node: str) -> bool:
        return False

    async def unreachable(self, _: Any) -> Unreachable:
        lost = frozenset({"node1"}) if self.is_lost else frozenset[str]()
        return Unreachable(lost, off=lost if self.called_off else frozenset())

    async def look(self) -> liveness.Verdict:
        uid, reports = self.pod["metadata"]["uid"], cast("NodeReports", self)
        if self.is_there:
            self.absences.present(self.vm, self.pod)
            found = verdict(self.pod, await gather(reports, ["node1"], []))
            self.reported = found == LOST
            return found
        lingers = self.absences.left(self.vm, uid, self.grace)
        with_node = self.reported and not self.absences.went_first(self.vm, uid)
        absent = Absent("pod", uid, "node1", lingers, went_with_node=with_node)
        found = verdict(absent, await gather(reports, ["node1"], [Timed(absent, self.absences, self.vm)]))
        self.reported = self.reported and self.is_lost
        return found

    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds
        if self.must_end_at is not None and self.now >= self.must_end_at:
            self.runs = False

    def cut(self) -> None:
        self.cut_at = self.now if self.cut_at is None else self.cut_at

    def heal(self) -> None:
        self.cut_at, self.called_off = None, False
        if not self.is_there and self.must_end_at is None:
            self.must_end_at = self.now + self.grace + KUBELET_SECONDS

    def power_off(self) -> None:
        self.runs = self.runs and self.cut_at is None

    def call_off(self) -> None:
        self.called_off = self.called_off or (self.is_lost and not self.runs)

    def delete_by_force(self) -> None:
        """Delete the pod by force, but not if NodeUnreachable is reported and the guest runs: administrators check that first."""
        if self.is_there and not (self.reported and self.runs):
            self.is_there = False
            if self.cut_at is None:
                self.must_end_at = self.now + self.grace + KUBELET_SECONDS


@pytest.mark.parametrize("grace", [0.0, 30.0, 600.0])
@pytest.mark.parametrize("seed", range(200))
async def test_no_pod_of_a_cut_off_node_is_over_while_it_runs(seed: int, grace: float) -> None:
    choose, world = random.Random(seed), CutNode(grace)
    events = (world.cut, world.heal, world.power_off, world.call_off, world.delete_by_force)
    for _ in range(60):
        if choose.random() < 0.4:
            choose.choice(events)()
        else:
            world.let_time_pass(choose.choice([0.5, 5.0, 20.0, 44.0]))
        found = await world.look()
        assert not (world.runs and isinstance(found, Over)), (seed, world)
