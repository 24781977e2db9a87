"""Host tests read back the generated disks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.hardware import cloud_init
from launcher.domain.values import InvalidSpecification
from launcher.main.disks import made_disks
from launcher.main.disks.made_disks import SourceUnusable
from launcher.main.programs.children import Children, CommandFailed
from launcher.protocol import messages
from tests.mounted import mount
from tests.unit.launcher.main.world import MACHINE


@pytest.fixture
def sources(tmp_path: Path, pod_directories: Callable[..., None]) -> Path:
    for name in ("SOURCES", "ACCESS_CREDENTIALS", "MADE"):
        pod_directories(**{name: tmp_path / name})
        (tmp_path / name).mkdir()
    return tmp_path


async def make(
    *disks: dict[str, Any], credentials: tuple[messages.AccessCredential, ...] = (), children: Children | None = None
) -> None:  # fmt: skip
    machine = dataclasses.replace(MACHINE, domain={"devices": {"disks": list(disks)}}, access_credentials=credentials)
    await made_disks.make(children or Children(), machine)


class Commands(Children):
    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails
        self.files: dict[str, bytes] = {}
        self.modes: set[int] = set()
        self.times: set[float] = set()

    async def run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
        tree, image = Path(arguments[-1]), Path(arguments[arguments.index("-o") + 1])
        every = [tree, *tree.rglob("*")]
        self.files = {str(each.relative_to(tree)): each.read_bytes() for each in every if each.is_file()}
        self.modes = {each.stat().st_mode & 0o077 for each in (*every, image)}
        self.times = {each.stat().st_mtime for each in every}
        assert (image.read_bytes(), environment["TZ"]) == (b"", "UTC")
        if self.fails:
            raise CommandFailed("no room")
        image.write_bytes(b"image")
        return ""


FILES = {"name": "files", "type": "Secret", "source": {"name": "s"}}
SEED = {"name": "seed", "type": "CloudInitNoCloud", "source": {"userDataSecretRef": {"name": "s"}}}


@pytest.mark.parametrize("disk", [FILES, SEED], ids=["files", "seed"])
async def test_unmounted_sources_are_reported_with_the_disk(sources: Path, disk: dict[str, Any]) -> None:
    with pytest.raises(SourceUnusable, match=f"disk '{disk['name']}': {disk['type']}: it is not mounted"):
        await make(disk)
    assert list((sources / "MADE").iterdir()) == []


async def test_a_key_that_no_image_can_name_is_told(sources: Path) -> None:
    mount(sources / "SOURCES/files", {"k" * (cloud_init.MAX_FILE_NAME + 1): b""})
    with pytest.raises(SourceUnusable, match=r"the key k+… has more than 103 characters"):
        await make(FILES)


async def test_invalid_data_are_reported_by_field_only() -> None:
    with pytest.raises(InvalidSpecification, match=r"^devices\.disks\[0\]\.source\.userData: must be base64$"):
        await make({**SEED, "source": {"userDataBase64": "sesame!"}})


async def test_keys_of_all_secrets_together_are_not_too_many(sources: Path) -> None:
    for position in range(2):
        keys = "".join(f"ssh-rsa {position}-{number}\n" for number in range(40))
        mount(sources / f"ACCESS_CREDENTIALS/{position}", {"keys": keys.encode()})
    credential = messages.AccessCredential("noCloud")
    with pytest.raises(SourceUnusable, match=r"spec\.accessCredentials: there are 80 public keys, more than 64"):
        await make({**SEED, "source": {}}, credentials=(credential, credential))


async def test_image_sources_are_private_and_removed_after_use(sources: Path) -> None:
    mount(sources / "SOURCES/files", {"a": b"1", "b": b"2"})
    commands = Commands()
    await make(FILES, children=commands)
    assert (commands.files, commands.modes) == ({"a": b"1", "b": b"2"}, {0})
    assert [each.name for each in (sources / "MADE").iterdir()] == ["files.iso"]


async def test_the_same_content_has_the_same_times(sources: Path) -> None:
    commands = Commands()
    await make({**SEED, "type": "CloudInitConfigDrive", "source": {"userData": "x"}}, children=commands)
    assert len(commands.times) == 1
    assert not list((sources / "MADE").glob("*.new"))


async def test_failed_start_leaves_no_files_for_the_next(sources: Path) -> None:
    mount(sources / "SOURCES/files", {"a": b"1"})
    with pytest.raises(CommandFailed):
        await make(FILES, children=Commands(fails=True))
    assert not (sources / "MADE/files.files").exists()
    assert not (sources / "MADE/files.iso").exists()
    (sources / "MADE/files.files").mkdir()
    (sources / "MADE/files.files/of a start that was broken off").touch()
    commands = Commands()
    await make(FILES, children=commands)
    assert commands.files == {"a": b"1"}
    await make(FILES, children=Commands())
    assert [each.name for each in (sources / "MADE").iterdir()] == ["files.iso"]


@pytest.mark.parametrize(("kind", "file"), [("CloudInitNoCloud", "meta-data"), ("CloudInitConfigDrive", "openstack/latest/meta_data.json")])
async def test_a_disk_brings_the_keys_of_its_own_method_alone(sources: Path, kind: str, file: str) -> None:
    for position, method in enumerate(("noCloud", "configDrive", "qemuGuestAgent")):
        mount(sources / f"ACCESS_CREDENTIALS/{position}", {"keys": f"ssh-rsa {method}\n".encode()})
    commands = Commands()
    credentials = (
        messages.AccessCredential("noCloud"),
        messages.AccessCredential("configDrive"),
        messages.AccessCredential("qemuGuestAgent", ("root",)),
    )
    await make({**SEED, "type": kind, "source": {}}, credentials=credentials, children=commands)
    brought = [each for each in ("noCloud", "configDrive", "qemuGuestAgent") if f"ssh-rsa {each}" in commands.files[file].decode()]
    assert brought == [kind[len("CloudInit") :][0].lower() + kind[len("CloudInit") + 1 :]]


async def test_each_secret_of_a_disk_may_be_as_large_as_one_can_be(sources: Path) -> None:
    large = b"x" * cloud_init.MAX_VALUES
    mount(sources / "SOURCES/seed", {"userData": large, "metaData": large})
    commands = Commands()
    source = {"userDataSecretRef": {"name": "s"}, "metaDataSecretRef": {"name": "t"}}
    await make({**SEED, "source": source}, children=commands)
    assert commands.files == {"user-data": large, "meta-data": large}
    mount(sources / "SOURCES/seed", {"userData": large, "metaData": large + b"x"})
    with pytest.raises(SourceUnusable, match="disk 'seed': CloudInitNoCloud: its values are larger"):
        await make({**SEED, "source": source}, children=commands)


async def test_a_credential_that_is_not_mounted_is_told_with_its_field(sources: Path) -> None:
    with pytest.raises(SourceUnusable, match=r"spec\.accessCredentials\[0\]: its Secret: it is not mounted"):
        await make({**SEED, "source": {}}, credentials=(messages.AccessCredential("noCloud"),))
    mount(sources / "ACCESS_CREDENTIALS/0", {"keys": b"\xff"})
    with pytest.raises(
        SourceUnusable,
        match=(
            r"spec\.accessCredentials\[0\]: line 1 of the value of 'keys' in "
            r"its Secret is not valid UTF-8 text"
        ),
    ):
        await make({**SEED, "source": {}}, credentials=(messages.AccessCredential("noCloud"),))
