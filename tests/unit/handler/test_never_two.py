"""Never two QEMU processes, and finally exactly one: the real plans of all components over a small model.

The model has one guest, two pods, libvirt's phases, and faults in any order: lost answers, cut relays, virt-handlers that die and restart
without state, launchers that die, an unavailable API server, killed pods.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from apiserver.apis.virt.lifecycle import departure, phases
from apiserver.apis.virt.places import names
from apiserver.apis.virt.rights.node_rights import migrations as restriction
from controller.reconcilers.actions import DeletePod, WriteStatus
from controller.reconcilers.migrations import migration_plan as controlling
from controller.reconcilers.settings import Settings
from handler.reconcilers.migrations import side_plan as handling
from launcher.domain.states import State
from launcher.hypervisor.port import Observation
from launcher.main.decisions import incoming_migration, life
from launcher.main.lifecycle import outgoing_migration
from launcher.protocol import messages
from tests.unit.controller.reconcilers import builders

UID = "migration-uid"
SOURCE = names.launcher_pod_name("testvm", builders.UID, 1)
TARGET = names.target_pod_name("testvm", UID)
ADDRESS = "10.0.0.2:8445"


@dataclasses.dataclass
class Pod:
    name: str
    state: State | None = None
    reason: str = ""
    migration: messages.MigrationStatus | None = None
    ended: str = ""
    """The launcher's last message; set after all here has ended."""
    deleting: bool = False
    heard: messages.Status | None = None
    """Its state in this node's virt-handler."""

    @property
    def over(self) -> bool:
        return bool(self.ended)

    @property
    def runs(self) -> bool:
        return not self.over and self.state is State.RUNNING

    @property
    def seen(self) -> Observation | None:
        return None if self.state is None else Observation("d", "u", "qemu", self.state, self.reason)

    def status(self) -> messages.Status:
        migrations = (self.migration,) if self.migration is not None else ()
        ending = messages.Ending("migrated" if self.ended.startswith("migrated") else "crashed") if self.over else None
        return messages.Status(1, migrations=migrations, ending=ending)

    def end(self, words: str) -> None:
        self.ended, self.state = words, None


class Migrating(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.source = Pod(SOURCE, State.RUNNING, "booted")
        self.target = Pod(TARGET)
        sides: dict[str, Any] = {
            "sourcePod": SOURCE,
            "targetPod": TARGET,
            "targetPodUID": f"uid-of-{TARGET}",
            "sourceNode": "n",
            "targetNode": "n2",
        }
        self.migration: dict[str, Any] = builders.a_migration(phase=phases.PREPARING_TARGET, **sides)
        self.migration["spec"]["selector"]["name"] = "testvm"
        self.vm: dict[str, Any] = builders.a_vm(phase="Running", attempts=[builders.an_attempt()])
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.handlers = {"source": True, "target": True}
        self.told, self.expected, self.relays = False, False, False
        self.api = True
        self.job = ""
        self.answer: bool | None = None

    # --- invariants ---

    @invariant()
    def never_two(self) -> None:
        if hasattr(self, "source"):
            assert not (self.source.runs and self.target.runs)
            assert not self.target.runs or self.source.state is None, "a QEMU is left on the source"
            assert self.vm["status"].get("podName") != TARGET or self.source.state is None, "the machine's pod is not the guest's"

    def teardown(self) -> None:
        if not hasattr(self, "source"):
            return
        self.api = True
        self.handlers = {"source": True, "target": True}
        for _ in range(60):
            self.now += timedelta(seconds=5)
            for step in (
                self.libvirt_goes_on,
                self.the_targets_qemu_ends,
                self.the_source_launcher_looks,
                self.the_target_launcher_looks,
                self.statuses_arrive,
                self.the_source_launcher_ends_after_the_guest_left,
                self.the_source_handler_works,
                self.the_target_handler_works,
                self.the_controller_works,
                self.kubelets_work,
            ):
                step()
                self.never_two()
        phase = phases.phase_of(self.migration)
        assert phase in phases.MIGRATION_FINAL, phase
        running = [pod for pod in (self.source, self.target) if pod.runs]
        lost = self.source.over and not self.source.ended.startswith("migrated")
        if phase == phases.SUCCEEDED:
            assert running == [self.target] or self.target_was_killed
        else:
            assert running == [self.source] or lost or self.target_was_killed or self.source_was_killed
        assert not (self.target.state is State.PAUSED and not self.target.over), "paused for ever"

    target_was_killed = False
    source_was_killed = False

    # --- libvirt ---

    @rule()
    def libvirt_goes_on(self) -> None:
        source, target = self.source, self.target
        if source.over:
            self.job = ""
            return
        if self.job == "perform":
            if not self.relays or target.over or target.migration is None:
                self._fail()
                return
            if target.state is None:
                target.state, target.reason = State.PAUSED, "starting up"
                return
            source.state, source.reason, self.job = State.PAUSED, "migrating", "finish"
        elif self.job == "finish":
            if self.relays and not target.over and target.state is State.PAUSED:
                target.reason, self.job = "user", "confirm"
            else:
                self._fail()
        elif self.job == "confirm":
            source.state, source.reason, self.job = None, "", ""

    def _fail(self) -> None:
        """Fail the migration as libvirt does without the target's answer: the source's domain resumes, and an incomplete target ends."""
        self.job = ""
        if self.source.state is State.PAUSED:
            self.source.state, self.source.reason = State.RUNNING, "migration canceled"
        if self.target.state is State.PAUSED and self.target.reason != "user":
            self.target.state, self.target.reason = State.SHUTDOWN, "unknown"  # until its QEMU has ended

    @rule()
    def the_targets_qemu_ends(self) -> None:
        if self.target.state is State.SHUTDOWN:
            self.target.state = None

    @precondition(lambda self: hasattr(self, "source") and self.job == "perform")
    @rule()
    def the_migration_is_aborted(self) -> None:
        self._fail()

    @precondition(lambda self: hasattr(self, "source") and self.job == "confirm")
    @rule()
    def the_answer_of_finish_is_lost(self) -> None:
        self._fail()

    @precondition(lambda self: hasattr(self, "source") and self.job in ("finish", "confirm"))
    @rule()
    def the_sources_libvirtd_restarts_without_an_outcome(self) -> None:
        self.job = ""  # libvirt leaves the domain paused with "migrating"; another component decides

    # --- launchers ---

    @rule()
    def the_source_launcher_looks(self) -> None:
        pod = self.source
        if pod.over or pod.migration is None or pod.migration.state != "running":
            return
        match outgoing_migration.finding(pod.seen, returned=pod.state is None, job=bool(self.job)):
            case outgoing_migration.Finding.LEFT:
                pod.migration = dataclasses.replace(pod.migration, state="succeeded")
            case outgoing_migration.Finding.STAYED:
                pod.migration = dataclasses.replace(pod.migration, state="failed")
            case outgoing_migration.Finding.HELD:
                pod.state, pod.reason = State.RUNNING, "unpaused"
            case outgoing_migration.Finding.REMAINS:
                pod.state = None
            case outgoing_migration.Finding.JOB_RUNS:
                pass

    @rule()
    def the_source_launcher_ends_after_the_guest_left(self) -> None:
        if not self.source.over and self.source.migration is not None and self.source.migration.state == "succeeded":
            self.source.end("migrated: the guest continues in another pod")

    @rule()
    def the_target_launcher_looks(self) -> None:
        pod = self.target
        if pod.over or pod.migration is None or pod.migration.state == "succeeded":
            return
        known = pod.migration
        if pod.seen is None:
            pod.migration = incoming_migration.lost(known, 1.0)
        else:
            pod.migration = incoming_migration.advanced(known, pod.seen, 1.0, releasing=pod.state is State.RUNNING)

    def _release(self) -> bool:
        pod = self.target
        self.the_target_launcher_looks()
        if pod.over or pod.migration is None or pod.migration.state not in ("arrived", "succeeded"):
            return False
        if pod.migration.state == "arrived":
            pod.state, pod.reason = State.RUNNING, "unpaused"
            pod.migration = dataclasses.replace(pod.migration, state="succeeded")
        return True

    # --- virt-handlers ---

    @rule()
    def statuses_arrive(self) -> None:
        for who, pod in (("source", self.source), ("target", self.target)):
            if self.handlers[who] and (not pod.over or pod.heard is not None):
                pod.heard = pod.status()

    @rule()
    def the_source_handler_works(self) -> None:
        if not self.handlers["source"]:
            return
        pod, held = self.source, self.migration
        observed = handling.Observed(held, pod.heard, connected=not pod.over, gone=pod.over, now=self.now, released=self.told)
        for action in handling.plan_source(observed):
            match action:
                case handling.BeginMigration():
                    self._write(phases.enter(held["status"], phases.RUNNING, self.now), node="n")
                case handling.MigrateGuest() if pod.migration is None and not pod.over:
                    self.relays, self.job = True, "perform"
                    pod.migration = messages.MigrationStatus(UID, "outgoing", "running")
                case handling.RequestRelease():
                    if self.handlers["target"] and self.expected and self._release():
                        self.told = True
                    elif not departure.is_released(held):
                        self._write(departure.released(held, departure.BY_HANDLER, "", self.now), node="n")
                case handling.EndMigration(phase=phase):
                    self._write(phases.enter(held["status"], phase, self.now), node="n")
                case _:
                    pass

    @rule()
    def the_target_handler_works(self) -> None:
        if not self.handlers["target"]:
            return
        pod, held = self.target, self.migration
        heard = dataclasses.replace(pod.heard or pod.status())
        observed = handling.Observed(held, heard, connected=not pod.over, gone=pod.over, now=self.now, relaying=self.expected)
        for action in handling.plan_target(dataclasses.replace(observed, address=ADDRESS)):
            match action:
                case handling.PrepareTarget() if pod.migration is None:
                    pod.migration = messages.MigrationStatus(UID, "incoming", "prepared")
                case handling.AcceptRelays():
                    self.expected = True
                case handling.OfferAddress(address=address):
                    phase = phases.TARGET_READY if phases.phase_of(held) == phases.PREPARING_TARGET else phases.phase_of(held)
                    self._write({**phases.enter(held["status"], phase, self.now), "targetAddress": address}, node="n2")
                case handling.ReleaseGuest():
                    self._release()
                case handling.TakeOverMachine() if self.api:
                    self.vm["status"]["podName"] = TARGET
                    self._write(phases.enter(held["status"], phases.SUCCEEDED, self.now), node="n2")
                case _:
                    pass

    @rule()
    def the_source_handler_dies(self) -> None:
        self.handlers["source"] = False
        self.relays, self.told, self.source.heard = False, False, None

    @rule()
    def the_target_handler_dies(self) -> None:
        self.handlers["target"] = False
        self.relays, self.expected, self.target.heard = False, False, None

    @rule()
    def both_handlers_are_back(self) -> None:
        self.handlers = {"source": True, "target": True}

    @rule()
    def the_relay_breaks(self) -> None:
        self.relays = False

    # --- virt-controller, the kubelets, the API ---

    def _write(self, status: dict[str, Any], node: str = "") -> None:
        """Write the Migration's status if the API works: as ``node``'s virt-handler, limited to its rights, or else as virt-controller."""
        if self.api:
            new, before = {**self.migration, "status": status}, phases.phase_of(self.migration)
            # A final phase stays; only virt-controller may add its condition.
            assert before not in phases.MIGRATION_FINAL or (not node and phases.phase_of(new) == before)
            write = restriction.MigrationWrite(node, self.migration, new, self.now, self.vm, frozenset({"10.0.0.2"}))
            assert not node or not restriction.validate(write)
            self.migration = new

    def _object(self, pod: Pod, **rest: Any) -> dict[str, Any]:
        made = builders.a_pod(
            phase="Succeeded" if pod.over else "Running", exit_code=0 if pod.over else None, deleting=pod.deleting, **rest
        )
        if pod.over:
            made["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = pod.ended
        return made

    @rule()
    def the_controller_works(self) -> None:
        if not self.api:
            return
        seen = controlling.Observed(
            self.migration,
            self.vm,
            self._object(self.source),
            self._object(self.target, migration=UID, node="n2"),
            {},
            self.now,
            Settings("launcher"),
        )
        for action in controlling.plan(seen):
            if isinstance(action, WriteStatus):
                self._write(action.status)
            elif isinstance(action, DeletePod):
                (self.source if action.name == SOURCE else self.target).deleting = True

    @rule()
    def kubelets_work(self) -> None:
        """Send SIGTERM to deleted pods; the launcher ends immediately or after the guest's grace period."""
        for pod in (self.source, self.target):
            if not pod.deleting or pod.over:
                continue
            known = pod.migration
            leaving = known is not None and known.direction == "outgoing" and known.state == "running"
            incoming = known.state if known is not None and known.direction == "incoming" and known.state != "succeeded" else None
            step = life.next_step(100, life.Stopping(200, 0), pod.seen, leaving=leaving, incoming=incoming)
            if step is life.Step.ABORT_MIGRATION:
                self._fail()
            elif step is not life.Step.WAIT:
                pod.end("shutdown-requested: it was asked to")
            elif not leaving and pod.seen is None:
                pod.end("migrated: the guest continues in another pod" if known and known.state == "succeeded" else "no guest was started")

    @rule()
    def the_target_is_killed(self) -> None:
        self.target_was_killed = True
        self.target.end("crashed: killed")

    @rule()
    def the_source_is_killed(self) -> None:
        if not self.source.over:
            self.source_was_killed = True
            self.source.end("crashed: killed")

    @rule()
    def the_api_goes(self) -> None:
        self.api = False

    @rule()
    def the_api_comes_back(self) -> None:
        self.api = True

    @rule()
    def time_passes(self) -> None:
        self.now += timedelta(seconds=controlling.LAST_WORDS_SECONDS)


Migrating.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestMigrating = Migrating.TestCase


def moved_as_far_as_confirm() -> Migrating:
    made = Migrating()
    made.begin()
    for _ in range(4):
        for step in (made.statuses_arrive, made.the_target_handler_works, made.the_source_handler_works, made.the_target_launcher_looks):
            step()
    for _ in range(3):
        made.libvirt_goes_on()
    assert made.job == "confirm"
    return made


def test_guest_that_left_without_handler_is_released_by_its_pod() -> None:
    made = moved_as_far_as_confirm()
    made.the_source_handler_dies()
    made.libvirt_goes_on()
    made.the_source_launcher_looks()
    made.the_source_launcher_ends_after_the_guest_left()
    made.teardown()
    assert made.target.runs
    assert departure.is_released(made.migration)


def test_a_lost_answer_leaves_the_guest_on_the_source() -> None:
    made = moved_as_far_as_confirm()
    made.the_answer_of_finish_is_lost()
    made.teardown()
    assert made.source.runs
    assert phases.phase_of(made.migration) == phases.FAILED


def test_source_dying_before_its_report_takes_the_guest_with_it() -> None:
    made = moved_as_far_as_confirm()
    made.the_source_is_killed()
    made.teardown()
    assert not made.target.runs
    assert phases.phase_of(made.migration) == phases.FAILED
