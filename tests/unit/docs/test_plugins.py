from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import pytest

from apiserver.apis.virt.spec import attachments
from handler.network import results, setup
from handler.plugins import answers, deleting, protocol, requests
from handler.plugins.answers import Output
from handler.plugins.calling import AT_ONCE, PATIENCE_SECONDS
from handler.plugins.faults import PluginRefused
from handler.plugins.protocol import Command
from handler.plugins.turns import LEFT_FOR_OTHERS
from handler.reconcilers.limits import Limits
from handler.storage import adding
from handler.storage import answers as of_disks
from handler.storage import requests as storage

TEXT = (Path(__file__).parents[3] / "docs/plugins.md").read_text()
ERROR, DESCRIPTION, REQUEST, RESULT = (json.loads(each) for each in re.findall(r"^```json\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE))


STORAGE = (Path(__file__).parents[3] / "docs/storage-plugins.md").read_text()
DISK_REQUEST, DISK_RESULT = (json.loads(each) for each in re.findall(r"^```json\n(.*?)^```", STORAGE, re.DOTALL | re.MULTILINE))


NAMED: dict[float, str] = {5: "five", 10: "ten"}


def vm() -> dict[str, Any]:
    interface = {each: REQUEST["interface"][each] for each in ("name", "type", "plugin", "options", "mac")}
    return {"metadata": REQUEST["machine"], "spec": {"domain": {"devices": {"interfaces": [interface]}}}}


def said(command: Command, document: Any, status: int = 0) -> Mapping[str, Any]:
    return answers.result_of("isolated", command, Output(status, json.dumps(document).encode()), answers.members_of("network", command))


def test_documented_plugin_request_is_the_real_one() -> None:
    (wanted,) = setup.wanted(vm())
    told = setup.over_the_wire({**requests.common(vm(), REQUEST["pod"]["uid"]), "interface": results.document_of(wanted)})
    links = {"tap": attachments.tap("private"), "bridge": attachments.bridge("private"), "uplink": attachments.link("private")}
    shown = {**REQUEST, "interface": {**REQUEST["interface"], **links}}  # its names contain a checksum
    assert {"version": "1.0.0", "kind": "network", "plugin": "isolated", **told} == shown
    assert {key: len(REQUEST["interface"][key]) for key in links} == {key: len(each) for key, each in links.items()}
    variables = {protocol.COMMAND_VARIABLE, protocol.NETNS_VARIABLE, protocol.NODE_NETNS_VARIABLE}
    assert set(re.findall(r"^\| `(KUBEVIRT_\w+)`", TEXT, re.MULTILINE)) == variables


def test_documented_plugin_answers_are_accepted() -> None:
    described = answers.describe("isolated", "network", said("VERSION", DESCRIPTION))
    assert not described.live_migration
    result = said("ADD", RESULT)
    wanted = results.wanted(REQUEST["interface"])
    assert results.of_theirs(wanted, result, live_migration=True).addresses == ("10.9.0.7",)
    with pytest.raises(PluginRefused, match="unknown option vlan: there is segment"):
        said("ADD", ERROR, status=1)


def test_documented_disk_plugin_exchange_is_accepted() -> None:
    shown = DISK_REQUEST["disk"]
    disk = {"name": shown["name"], "type": "Plugin", "source": {"plugin": DISK_REQUEST["plugin"], "options": shown["options"]}}
    vm = {"metadata": DISK_REQUEST["machine"], "spec": {"domain": {"devices": {"disks": [disk]}}}}
    (found,) = storage.disks_of(vm)
    told = storage.document(vm, DISK_REQUEST["pod"]["uid"], found, PurePath(shown["directory"]))
    paths = {each: f"{shown['directory']}/{shown[each].rpartition('/')[2]}" for each in ("socket", "image")}  # the page shortens them
    assert {"version": "1.0.0", "kind": "storage", "plugin": "images", **told} == {**DISK_REQUEST, "disk": {**shown, **paths}}
    result = {**DISK_RESULT, "disk": {**DISK_RESULT["disk"], "path": paths["socket"]}}
    answer = answers.result_of("images", "ADD", Output(0, json.dumps(result).encode()), answers.members_of("storage", "ADD"))
    served = of_disks.served_by("images", told["disk"], answer, live_migration=True)
    assert (served.protocol, served.size, served.live_migration) == ("nbd", 16 << 30, False)
    members = set(re.findall(r"^\| `(\w+)` \|", STORAGE, re.MULTILINE))
    assert members == set(DISK_RESULT["disk"]) == of_disks.MEMBERS


@pytest.mark.parametrize(
    "words",
    [
        f"A call has {protocol.SECONDS:g} seconds, {protocol.MAX_OUTPUT >> 10} KiB of standard output",
        f"and {protocol.MAX_ERRORS >> 10} KiB of standard error",
        f"may have {protocol.MAX_DATA >> 20} MiB of memory of its own",
        f"All interfaces of a pod together have {setup.PREPARE_SECONDS:g} seconds in each try, "
        f"and each disk has {adding.DEFAULT_LIMITS.all_seconds:g}.",
        f"after one second, then after twice as long each time, up to {adding.LONGEST_RETRY_SECONDS:g} seconds",
        f"every {NAMED[Limits().network_seconds]} seconds after {NAMED[Limits().network_tries_burst]} tries",
        f"with pauses of up to {NAMED[deleting.LONGEST_RETRY_SECONDS / 60]} minutes",
    ],
)
def test_the_numbers_of_the_page_are_those_of_the_code(words: str) -> None:
    assert words in TEXT.replace("\n", " ")


def test_turns_are_as_the_page_says() -> None:
    assert (AT_ONCE, AT_ONCE - LEFT_FOR_OTHERS) == (4, 3)
    text = TEXT.replace("\n", " ")
    assert f"A call waits up to {PATIENCE_SECONDS:g} seconds for its turn" in text
    assert "at most four `ADD`, four `CHECK` and four `DEL` at a time, and at most three of each for machines of one namespace" in text
