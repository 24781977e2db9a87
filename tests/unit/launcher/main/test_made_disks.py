"""Sources of which no disk is made; the disks that are made are read back by tests on the host."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt import cloud_init
from launcher.domain.values import InvalidSpecification
from launcher.main import made_disks
from launcher.main.children import Children
from launcher.main.made_disks import SourceUnusable
from launcher.protocol import messages
from tests.mounted import mount
from tests.unit.launcher.main.world import MACHINE


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SOURCES", "ACCESS_CREDENTIALS", "MADE"):
        monkeypatch.setattr(f"apiserver.apis.virt.layout.{name}_DIRECTORY", str(tmp_path / name))
        (tmp_path / name).mkdir()
    return tmp_path


async def make(*disks: dict[str, Any], credentials: tuple[messages.AccessCredential, ...] = ()) -> None:
    machine = dataclasses.replace(MACHINE, domain={"devices": {"disks": list(disks)}}, access_credentials=credentials)
    await made_disks.make(Children(), machine)


FILES = {"name": "files", "type": "Secret", "source": {"name": "s"}}
SEED = {"name": "seed", "type": "CloudInitNoCloud", "source": {"userDataSecretRef": {"name": "s"}}}


@pytest.mark.parametrize("disk", [FILES, SEED], ids=["files", "seed"])
async def test_what_is_not_mounted_is_told_with_the_disk(sources: Path, disk: dict[str, Any]) -> None:
    with pytest.raises(SourceUnusable, match=f"disk '{disk['name']}': {disk['type']}: it is not mounted"):
        await make(disk)
    assert list((sources / "MADE").iterdir()) == []


async def test_a_key_that_no_image_can_name_is_told(sources: Path) -> None:
    mount(sources / "SOURCES/files", {"k" * (cloud_init.MAX_FILE_NAME + 1): b""})
    with pytest.raises(SourceUnusable, match=r"the key k+… has more than 103 characters"):
        await make(FILES)


async def test_data_that_virt_api_did_not_see_are_told_with_their_field_alone() -> None:
    with pytest.raises(InvalidSpecification, match=r"^devices\.disks\[0\]\.source\.userData: must be base64$"):
        await make({**SEED, "source": {"userDataBase64": "sesame!"}})


async def test_keys_of_all_secrets_together_are_not_too_many(sources: Path) -> None:
    for position in range(2):
        keys = "".join(f"ssh-rsa {position}-{number}\n" for number in range(40))
        mount(sources / f"ACCESS_CREDENTIALS/{position}", {"keys": keys.encode()})
    credential = messages.AccessCredential("noCloud")
    with pytest.raises(SourceUnusable, match=r"spec\.accessCredentials: there are 80 public keys, more than 64"):
        await make({**SEED, "source": {}}, credentials=(credential, credential))
