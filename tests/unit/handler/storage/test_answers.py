from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.hardware.plugin_disks import Served
from handler.plugins.faults import Failed
from handler.storage import answers

TOLD = {"socket": "/d/nbd.sock", "image": "/d/disk.img", "sizeLimit": 4096}
NBD: dict[str, Any] = {"protocol": "nbd", "path": "/d/nbd.sock", "size": 8192}
FILE: dict[str, Any] = {"protocol": "file", "path": "/d/disk.img", "size": 4096}


def served(disk: Any, *, live_migration: bool = False) -> Served:
    return answers.served_by("images", TOLD, {"version": "1.0.0", "disk": disk}, live_migration=live_migration)


@pytest.mark.parametrize("live", [True, False])
def test_valid_plugin_answers_are_accepted(live: bool) -> None:
    assert served(NBD, live_migration=live) == Served("nbd", 8192, "", live_migration=live)
    assert served({**NBD, "export": "vms/a", "liveMigration": not live}, live_migration=live) == Served(
        "nbd", 8192, "vms/a", live_migration=not live
    )
    assert served(FILE, live_migration=live) == Served("file", 4096, live_migration=live)
    assert served({**FILE, "size": 512}).size == 512
    assert served({**NBD, "size": 1 << 50}).size == 1 << 50


@pytest.mark.parametrize(
    ("disk", "words"),
    [
        (None, "without a disk"),
        ([], "without a disk"),
        ({**NBD, "protocol": "iscsi"}, "protocol 'iscsi'"),
        ({**NBD, "protocol": None}, "protocol None"),
        ({**NBD, "protocol": ["nbd"]}, "protocol"),
        ({**NBD, "path": "/d/disk.img"}, "path '/d/disk.img' instead of /d/nbd.sock"),
        ({**NBD, "path": None}, "path None"),
        ({**NBD, "path": "/d/\x1b]0;x\x07"}, "path '/d/"),
        ({**NBD, "size": 0}, "size 0"),
        ({**NBD, "size": -512}, "size -512"),
        ({**NBD, "size": 513}, "size 513"),
        ({**NBD, "size": True}, "size True"),
        ({**NBD, "size": 512.0}, "size 512.0"),
        ({**NBD, "size": "512"}, "size '512'"),
        ({**NBD, "size": 1 << 60}, "size"),
        ({**NBD, "export": 'a","b'}, "export"),
        ({**NBD, "export": None}, "export None"),
        ({**FILE, "export": "a"}, "export 'a'"),
        ({**FILE, "size": 4608}, "source.sizeLimit is 4096"),
        ({**NBD, "liveMigration": "yes"}, "liveMigration"),
        ({**NBD, "liveMigration": None}, "liveMigration"),
        ({**NBD, "backingFile": "/etc/shadow"}, "an unknown field of disk: backingFile"),
        ({**NBD, "b": 1, "a": 1}, "an unknown field of disk: a"),
    ],
    ids=str,
)
def test_invalid_plugin_answers_are_refused(disk: Any, words: str) -> None:
    with pytest.raises(Failed, match=r"^plugin images \(ADD\) ") as raised:
        served(disk)
    assert words in str(raised.value)
    assert str(raised.value).isprintable()
