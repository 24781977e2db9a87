from __future__ import annotations

from typing import Any

from apiserver.apis.meta import objects
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.v1alpha1.status_validation import validate_virtual_machine_status
from handler.reconcilers.guests import guest_imports, guest_status
from launcher.protocol import messages
from launcher.protocol.messages import ImportStatus
from tests.unit.handler.reconcilers.builders import NOW, a_running, a_vm

URL = "https://images.example/a.img"


def importing(*told: ImportStatus, vm: dict[str, Any] | None = None) -> dict[str, Any]:
    machine = vm or a_vm()
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "c", "import": {"http": {"url": f"{URL}?sig=s#f"}}}}
    machine["spec"]["domain"]["devices"]["disks"] = [disk]
    return {**machine, "status": guest_imports.status_of(machine, messages.Status(1, imports=told), NOW)}


def disks_ready(vm: dict[str, Any]) -> tuple[str, str, str]:
    found = objects.condition(vm["status"]["conditions"], "DisksReady") or {}
    ready = objects.condition(vm["status"]["conditions"], "Ready") or {}
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "DisksNotReady", found["message"])
    return found["status"], found["reason"], found["message"]


def test_import_progress_is_reported_without_the_urls_query() -> None:
    vm = importing(ImportStatus("root", "Downloading", 5 << 20, 9 << 20))

    assert disks_ready(vm) == ("False", "Importing", f"disk 'root': 5 of 9 MiB of its image downloaded from {URL}")
    assert vm["status"]["imports"] == [{"disk": "root", "phase": "Downloading", "transferredBytes": 5 << 20, "totalBytes": 9 << 20}]
    assert guest_imports.is_importing(vm)
    assert conditions.waits_for(vm) == {conditions.Wait.IMAGE}
    assert not validate_virtual_machine_status(vm, {})


def test_import_of_unknown_size_is_reported_without_a_total() -> None:
    vm = importing(ImportStatus("root", "Downloading", 5 << 20))

    assert disks_ready(vm)[2] == f"disk 'root': 5 MiB of its image downloaded from {URL}"
    assert "totalBytes" not in vm["status"]["imports"][0]


def test_a_failure_is_told_with_its_words() -> None:
    vm = importing(ImportStatus("root", "Retrying", 0, 0, 2, f"{URL} answers 503"))

    assert disks_ready(vm) == ("False", "ImportFailed", f"disk 'root': {URL} answers 503; retrying until the machine is stopped")
    assert vm["status"]["imports"] == [
        {"disk": "root", "phase": "Retrying", "transferredBytes": 0, "failures": 2, "message": f"{URL} answers 503"}
    ]


def test_the_other_phases_are_told() -> None:
    assert "converting it" in disks_ready(importing(ImportStatus("root", "Converting")))[2]
    assert "waiting for the import of another image" in disks_ready(importing(ImportStatus("root")))[2]


def test_only_known_import_disks_are_reported_and_texts_bounded() -> None:
    forged = ImportStatus("other", "Retrying", 1, 1, 1, "x")
    vm = importing(*[forged] * 100, ImportStatus("root", "Retrying", -5, -1, 1 << 40, "a\x1b[2J\n" + "b" * 9999))

    (told,) = vm["status"]["imports"]
    assert (told["disk"], told["transferredBytes"], told["failures"]) == ("root", 0, (1 << 31) - 1)
    assert told["message"].isprintable()
    assert len(told["message"]) <= guest_status.MAX_MESSAGE
    assert not validate_virtual_machine_status(vm, {})


def test_events_tell_of_the_beginning_and_of_each_failure_once() -> None:
    first = importing(ImportStatus("root", "Downloading"))
    again = importing(ImportStatus("root", "Downloading", 1), vm=first)
    failed = importing(ImportStatus("root", "Retrying", 1, 0, 1, "no"), vm=first)

    assert guest_imports.events({**first, "status": {}}, first["status"]) == [
        ("Normal", "ImportStarted", f"disk 'root': importing the image from {URL}")
    ]
    assert guest_imports.events(first, again["status"]) == []
    assert guest_imports.events(first, failed["status"]) == [
        ("Warning", "ImportFailed", "disk 'root': no; retrying until the machine is stopped")
    ]
    assert guest_imports.events(failed, failed["status"]) == []


def test_imports_are_not_reported_once_the_guest_runs_or_ended() -> None:
    vm = importing(ImportStatus("root", "Converting"))

    running = guest_status.running(vm, a_running(), None, NOW)
    ended = guest_status.ended(vm, guest_status.End("Stopped", "ShutDown", ""), NOW)

    assert "imports" not in running
    assert "imports" not in ended
    assert (objects.condition(running["conditions"], "DisksReady") or {})["status"] == "True"
    assert objects.condition(ended["conditions"], "DisksReady") is None
