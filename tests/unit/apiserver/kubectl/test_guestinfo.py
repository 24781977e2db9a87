from __future__ import annotations

import json

import pytest
import yaml

from apiserver.apis.virt.spec import guestinfo
from apiserver.kubectl import flags
from apiserver.kubectl.guestinfo import printed, table

INFO = {
    "agent": {"version": "7.2.22", "commands": ["guest-info"]},
    "os": {"prettyName": "Debian GNU/Linux 13 (trixie)", "kernelRelease": "6.12.1"},
    "hostname": "web-1",
    "timezone": {"name": "UTC", "offsetSeconds": 0},
    "users": [{"userName": "alice", "loginTime": "2026-01-01T00:00:00Z"}],
    "filesystems": [{"name": "vda1", "mountPoint": "/", "type": "ext4", "totalBytes": 3 << 30, "usedBytes": 900}],
    "interfaces": [{"name": "default", "device": "eth0", "mac": "02:00:00:00:00:09", "ipAddresses": ["10.0.2.2", "fd00::2"]}],
    "applications": [{"name": "bash", "version": "5.2"}],
    "truncated": ["users"],
    "unavailable": [{"field": "applications", "reason": "no"}],
}
SHOWN = """\
Guest agent:        7.2.22
Operating system:   Debian GNU/Linux 13 (trixie)
Kernel:             6.12.1
Host name:          web-1
Time zone:          UTC
Applications:       1

USER    DOMAIN   SINCE
alice   <none>   2026-01-01T00:00:00Z

MOUNT POINT   TYPE   SIZE   USED   NAME
/             ext4   3Gi    900    vda1

DEVICE   NAME      MAC                 ADDRESSES
eth0     default   02:00:00:00:00:09   10.0.2.2,fd00::2
There are more users than shown.
Not told: applications: no"""


def test_the_table_has_what_people_ask_for() -> None:
    assert table(INFO) == SHOWN
    assert "APPLICATION   VERSION\nbash          5.2" in table(INFO, wide=True)


def test_a_guest_that_tells_nothing_has_a_table() -> None:
    assert table({}).splitlines()[3] == "Host name:          <none>"


def test_guest_info_table_prints_no_control_characters() -> None:
    nasty = {"hostname": "\x1b[2J\nx", "users": [{"userName": "\x1b]0;x\x07\r\n"}], "applications": [{"name": 1}]}
    assert all(line.isprintable() for line in table(guestinfo.bounded(nasty), wide=True).splitlines())


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_guest_info_documents_are_complete_and_printable(output: str) -> None:
    answer = {**INFO, "hostname": "\x1b[2J\u009b\u202e"}
    assert flags.parse(["guestinfo", "a", "-o", output]).output == output
    told = printed(answer, output)
    assert (json.loads(told) if output == "json" else yaml.safe_load(told)) == answer
    assert told.startswith("{") == (output == "json")
    assert all(line.isprintable() for line in told.splitlines())
