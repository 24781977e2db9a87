from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from apiserver.kubectl import creating
from apiserver.kubectl.creating import Wanted
from apiserver.kubectl.messages import Failure
from apiserver.registry.generic.options import WriteOptions
from apiserver.registry.generic.planning import Planner
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy

FULL = Wanted("web", "ns", "2Gi", 2, "registry/debian:13", "disk/disk.qcow2", "data", "", "keys", "Always")


@pytest.mark.parametrize("wanted", [FULL, Wanted("web", memory="1Gi", claim="root")])
def test_the_manifest_is_valid(wanted: Wanted) -> None:
    strategy = VirtualMachineStrategy()
    made = creating.manifest(wanted, "#cloud-config\n" if wanted.ssh_secret else "")
    assert Planner(strategy).read(made, WriteOptions()) == []
    strategy.default(made)
    assert strategy.validate(made) == []


def test_the_manifest_has_what_was_wanted() -> None:
    spec = creating.manifest(FULL)["spec"]
    assert [each["type"] for each in spec["domain"]["devices"]["disks"]] == ["Image", "PersistentVolumeClaim", "CloudInitNoCloud"]
    assert (spec["domain"]["cpu"], spec["runStrategy"]) == ({"cores": 2}, "Always")
    assert spec["accessCredentials"][0]["sshPublicKey"]["source"] == {"secret": {"secretName": "keys"}}


def test_what_is_missing_is_asked_for_on_a_terminal() -> None:
    def asking(*answers: str) -> Iterator[str]:
        yield from answers

    replies = asking("web", "", "", "root")
    asked = creating.completed(Wanted(), lambda _: next(replies))
    assert (asked.name, asked.memory, asked.image, asked.claim) == ("web", "1Gi", "", "root")
    assert creating.completed(FULL, None) == FULL
    for wanted, missing in ((Wanted(), "needs a name"), (Wanted("web"), "needs a disk")):
        with pytest.raises(Failure, match=missing):
            creating.completed(wanted, None)


@pytest.mark.parametrize("memory", ["1GB", "lots", "-1Gi", "1Mi", "17Ti"])
def test_memory_that_no_machine_can_have_is_refused(memory: str) -> None:
    with pytest.raises(Failure, match="^error: --memory: .*" + memory):
        creating.completed(Wanted("web", memory=memory, claim="root"), None)


def test_yaml_is_printed_with_the_user_data(tmp_path: Path) -> None:
    file = tmp_path / "user-data"
    file.write_text("#cloud-config\npackages: [nginx]\n")
    printed = yaml.safe_load(creating.run(Wanted("web", memory="1Gi", claim="root", cloud_init=str(file))))
    assert printed["spec"]["domain"]["devices"]["disks"][1]["source"]["userData"] == file.read_text()
    with pytest.raises(Failure, match="absent"):
        creating.run(Wanted("web", claim="root", cloud_init=str(tmp_path / "absent")))
