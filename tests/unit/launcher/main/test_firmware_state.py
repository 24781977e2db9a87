from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from apiserver.apis.virt.places import layout
from launcher.hypervisor.daemon import Daemon
from launcher.main.disks import firmware_state
from launcher.main.disks.firmware_state import StateUnusable
from launcher.main.programs.children import Children
from tests import system_calls

VARIABLES = b"variables of a machine that was never on"
STATE = {"persistentState": {"claimName": "c"}}
EFI = {"firmware": {"bootloader": {"efi": {"secureBoot": False}}}}
KEPT_EFI = {"firmware": {"bootloader": {"efi": {"secureBoot": False, "persistent": True}}, **STATE}}
TPM: dict[str, Any] = {"devices": {"tpm": {}}}
Prepare = Callable[..., None]
KEPT_TPM = {"firmware": STATE, "devices": {"tpm": {"persistent": True}}}


class Commands(Children):
    """Stands in for swtpm_setup: needs an empty directory, and creates the TPM's file there."""

    def __init__(self) -> None:
        super().__init__()
        self.ran = 0

    async def run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
        self.ran += 1
        directory = Path(arguments[arguments.index("--tpmstate") + 1])
        assert list(directory.iterdir()) == []
        (directory / "tpm2-00.permall").write_bytes(b"keys %d" % self.ran)
        return ""


@pytest.fixture
def volumes(tmp_path: Path, pod_directories: Callable[..., None]) -> Path:
    for name in ("claim", "run", "ovmf"):
        (tmp_path / name).mkdir()
    (tmp_path / "ovmf/OVMF_VARS_4M.fd").write_bytes(VARIABLES)
    pod_directories(STATE=tmp_path / "claim", EFI_VARIABLES=tmp_path / "run/efi", TPM=tmp_path / "run/swtpm")
    return tmp_path


@pytest.fixture
def prepare(volumes: Path) -> Prepare:
    def prepare(specification: Mapping[str, Any], commands: Children | None = None, uid: str = "u-1") -> None:
        ovmf = PurePosixPath(volumes / "ovmf")
        asyncio.run(firmware_state.prepare(commands or Commands(), specification, uid, "the-uuid", ovmf))

    return prepare


def test_a_machine_without_either_needs_nothing(volumes: Path, prepare: Prepare) -> None:
    prepare({})
    assert list((volumes / "claim").iterdir()) == list((volumes / "run").iterdir()) == []


def test_new_variables_are_durable_before_their_name(volumes: Path) -> None:
    made, seen = volumes / "claim/u-1/OVMF_VARS_4M.fd", list[tuple[bytes, bool]]()
    with system_calls.at(os.fsync, lambda: seen.append((made.with_suffix(".new").read_bytes(), made.exists()))):
        firmware_state._prepare_variables(volumes / "ovmf" / made.name, made)
    assert seen == [(VARIABLES, False)]


@pytest.mark.parametrize(("specification", "place"), [(EFI, "run/efi"), (KEPT_EFI, "claim/u-1")], ids=["pod", "claim"])
def test_variables_are_made_once_and_stay(volumes: Path, prepare: Prepare, specification: Mapping[str, Any], place: str) -> None:
    prepare(specification)
    file = volumes / place / "OVMF_VARS_4M.fd"
    assert file.read_bytes() == VARIABLES
    assert [each.name for each in (volumes / place).iterdir()] == [file.name]
    assert (volumes / place).stat().st_mode & 0o777 == 0o700
    changed = VARIABLES.replace(b"never", b"twice")
    file.write_bytes(changed)
    (volumes / place / "OVMF_VARS_4M.new").write_bytes(b"of a start that was cut off")
    prepare(specification)
    assert file.read_bytes() == changed


def test_unfinished_start_leaves_no_state(volumes: Path, prepare: Prepare) -> None:
    directory = volumes / "claim/u-1"
    (directory / "tpm/tpm2.new").mkdir(parents=True)
    (directory / "tpm/tpm2.new/tpm2-00.permall").write_bytes(b"half")
    (directory / "OVMF_VARS_4M.new").write_bytes(b"half")
    prepare({**KEPT_EFI, **KEPT_TPM, "firmware": KEPT_EFI["firmware"]})
    assert (directory / "tpm/tpm2/tpm2-00.permall").read_bytes() == b"keys 1"
    assert (directory / "OVMF_VARS_4M.fd").read_bytes() == VARIABLES


def test_a_tpm_is_made_once_where_libvirt_looks_for_it(volumes: Path, prepare: Prepare) -> None:
    commands = Commands()
    prepare(TPM, commands)
    prepare(TPM, commands)
    assert (volumes / "run/swtpm/the-uuid/tpm2/tpm2-00.permall").read_bytes() == b"keys 1"


def test_persistent_tpm_is_in_the_claim_for_the_next_pod(volumes: Path, prepare: Prepare) -> None:
    commands = Commands()
    prepare(KEPT_TPM, commands)
    place = volumes / "run/swtpm/the-uuid"
    assert place.readlink() == volumes / "claim/u-1/tpm"
    place.unlink()
    prepare(KEPT_TPM, commands)
    prepare(KEPT_TPM, commands)
    assert (place / "tpm2/tpm2-00.permall").read_bytes() == b"keys 1"
    assert commands.ran == 1


def test_libvirtd_looks_there() -> None:
    configuration = Daemon(Path(layout.RUN_DIRECTORY), Path(layout.CACHE_DIRECTORY)).environment()["XDG_CONFIG_HOME"]
    assert f"{configuration}/libvirt/qemu/swtpm" == layout.TPM_DIRECTORY


def test_a_uuid_that_was_given_is_the_name_of_the_directory(volumes: Path, prepare: Prepare) -> None:
    uuid = "5D307CA9-b3ef-428c-8861-06e72d69f223"
    prepare({"firmware": {**KEPT_EFI["firmware"], "uuid": uuid}})
    assert [each.name for each in (volumes / "claim").iterdir()] == [uuid.lower()]


def test_a_group_that_the_kubelet_let_in_is_shut_out_again(volumes: Path, prepare: Prepare) -> None:
    (volumes / "claim/u-1/tpm/tpm2").mkdir(parents=True)
    for each in ("u-1", "u-1/tpm", "u-1/tpm/tpm2"):
        (volumes / "claim" / each).chmod(0o770)
    prepare(KEPT_TPM)
    assert {(volumes / "claim" / each).stat().st_mode & 0o777 for each in ("u-1", "u-1/tpm", "u-1/tpm/tpm2")} == {0o700}


def a_link(place: Path) -> None:
    target = place.parent.parent / "elsewhere"
    target.write_bytes(VARIABLES)
    place.symlink_to(target)


def a_second_name(place: Path) -> None:
    target = place.parent.parent / "elsewhere"
    target.write_bytes(VARIABLES)
    place.hardlink_to(target)


def large(place: Path) -> None:
    place.touch()
    os.truncate(place, firmware_state.MAX_TPM_BYTES + 1)


@pytest.mark.parametrize("plant", [a_link, a_second_name, Path.mkdir, os.mkfifo, large], ids=lambda each: each.__name__)
def test_planted_state_files_are_refused(volumes: Path, prepare: Prepare, plant: Any) -> None:
    variables = volumes / "claim/u-1/OVMF_VARS_4M.fd"
    variables.parent.mkdir()
    plant(variables)
    with pytest.raises(StateUnusable, match=r"OVMF_VARS_4M\.fd"):
        prepare(KEPT_EFI)
    permanent = volumes / "claim/u-1/tpm/tpm2/tpm2-00.permall"
    permanent.parent.mkdir(parents=True)
    plant(permanent)
    with pytest.raises(StateUnusable, match="tpm2"):
        prepare(KEPT_TPM)


@pytest.mark.parametrize("name", ["u-1", "u-1/tpm", "u-1/tpm/tpm2"])
@pytest.mark.parametrize("kind", ["link", "file"])
def test_planted_state_directories_are_refused(volumes: Path, prepare: Prepare, name: str, kind: str) -> None:
    place = volumes / "claim" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        place.symlink_to(volumes)
    else:
        place.touch()
    with pytest.raises(StateUnusable, match=place.name):
        prepare(KEPT_TPM)
    assert list((volumes / "ovmf").iterdir()) == [volumes / "ovmf/OVMF_VARS_4M.fd"]


def test_more_files_than_a_tpm_has_are_not_read(volumes: Path, prepare: Prepare) -> None:
    directory = volumes / "claim/u-1/tpm/tpm2"
    directory.mkdir(parents=True)
    for number in range(firmware_state.MAX_TPM_FILES):
        (directory / str(number)).touch()
    prepare(KEPT_TPM)
    (directory / "one more").touch()
    with pytest.raises(StateUnusable, match="tpm2"):
        prepare(KEPT_TPM)


def test_state_directory_of_another_user_is_refused(volumes: Path, prepare: Prepare, pod_directories: Callable[..., None]) -> None:
    if os.geteuid() == 0:
        (volumes / "claim/u-1").mkdir()
        os.chown(volumes / "claim/u-1", 65534, -1)
        uid = "u-1"
    else:  # without the right to change owners it stays root's
        pod_directories(STATE=Path("/"))
        uid = "usr"
    with pytest.raises(StateUnusable, match="belongs to user"):
        prepare(KEPT_EFI, uid=uid)
