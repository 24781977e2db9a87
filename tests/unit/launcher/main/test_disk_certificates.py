"""Host tests use real servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.main.disks import disk_certificates
from launcher.main.disks.disk_servers import ServersUnreachable
from launcher.main.disks.made_disks import SourceUnusable
from launcher.main.programs.children import Children, CommandFailed
from tests.mounted import mount

NBD: dict[str, Any] = {"name": "data", "type": "NBD", "source": {"host": "nbd.example", "tlsSecretRef": {"name": "certificates"}}}
OPEN: dict[str, Any] = {"name": "open", "type": "NBD", "source": {"host": "nbd.example", "export": "open"}}
VALUES = {"ca-cert.pem": b"authority", "client-cert.pem": b"certificate", "client-key.pem": b"key"}


class Commands(Children):
    """Records the calls, and answers like a correct, failing or hanging server."""

    def __init__(self, said: str = "", *, hangs: bool = False) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._said, self._hangs = said, hangs

    async def run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
        assert set(environment) == {"PATH", "LC_ALL"}
        self.asked.append(arguments[-1])
        if self._hangs:
            await asyncio.sleep(3600)
        if self._said:
            raise CommandFailed(f"qemu-img ended with 1: qemu-img: {self._said.format(place=arguments[-1])}")
        return ""


@pytest.fixture
def directories(tmp_path: Path, pod_directories: Callable[..., None]) -> tuple[Path, Path]:
    pod_directories(NBD_TLS=tmp_path / "secret", NBD_CERTIFICATES=tmp_path / "certificates")
    return tmp_path / "secret", tmp_path / "certificates"


async def prepare(*disks: dict[str, Any], children: Children | None = None, seconds: float = disk_certificates.SECONDS) -> None:
    await disk_certificates.prepare(children or Commands(), {"devices": {"disks": list(disks)}}, seconds)


async def test_certificates_are_private_and_rewritten_for_each_try(directories: tuple[Path, Path]) -> None:
    source, written = directories
    for values in (VALUES, {"ca-cert.pem": b"another"}):
        mount(source, values)
        await prepare(OPEN, NBD)
        assert {each.name: each.read_bytes() for each in written.iterdir()} == values
        assert {each.stat().st_mode & 0o777 for each in written.iterdir()} == {0o400}
    assert written.stat().st_mode & 0o777 == 0o700


async def test_each_server_is_asked_as_qemu_will_ask_it(directories: tuple[Path, Path]) -> None:
    mount(directories[0], VALUES)
    commands = Commands()
    named = {**NBD["source"], "export": "vms/a=1", "port": 7, "tlsHostname": "other.example"}
    await prepare(NBD, OPEN, {"name": "named", "type": "NBD", "source": named}, children=commands)
    server = '"driver": "nbd", "server": {"type": "inet", "host": "nbd.example", "port": "%d"}, "tls-creds": "tls"'
    assert commands.asked == [
        f'json:{{"driver": "raw", "file": {{{server % 10809}}}}}',
        f'json:{{"driver": "raw", "file": {{{server % 7}, "export": "vms/a=1", "tls-hostname": "other.example"}}}}',
    ]


async def test_nothing_is_asked_or_written_for_disks_without_tls(directories: tuple[Path, Path]) -> None:
    commands = Commands()
    await prepare(OPEN, children=commands)
    assert (commands.asked, directories[1].exists()) == ([], False)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ca-cert.pem": b""}, "ca.crt is empty"),
        ({"ca-cert.pem": b" \n"}, "ca.crt is empty"),
        ({"ca-cert.pem": None}, "ca.crt is empty"),
        ({"client-cert.pem": None}, "it has tls.key but no tls.crt"),
        ({"client-key.pem": b"\n"}, "it has tls.crt but no tls.key"),
        ({"ca-cert.pem": b"a" * (disk_certificates.MAX_BYTES + 1)}, "its values are larger than Kubernetes allows"),
        ({"other": b""}, "it has 4 keys, more than 3"),
    ],
)
async def test_a_secret_that_cannot_be_one_is_told(
    directories: tuple[Path, Path], changed: Mapping[str, bytes | None], words: str
) -> None:  # fmt: skip
    mount(directories[0], {name: value for name, value in {**VALUES, **changed}.items() if value is not None})
    with pytest.raises(SourceUnusable) as told:
        await prepare(NBD)
    assert str(told.value) == f"Secret 'certificates' of tlsSecretRef: {words}"


async def test_qemu_error_shows_secret_keys_and_no_options(directories: tuple[Path, Path]) -> None:
    source, written = directories
    mount(source, VALUES)
    for said, words in (
        ("Could not open '{place}': It's no server:\nsays 'nobody': ever", "It's no server: says 'nobody': ever"),
        (f"{written}/client-cert.pem against {written}/ca-cert.pem", "tls.crt against ca.crt"),
    ):
        with pytest.raises(SourceUnusable) as told:
            await prepare(NBD, children=Commands(said))
        assert str(told.value) == f"disk 'data': TLS with its server: {words}"


async def test_silent_server_is_awaited_like_a_missing_one(directories: tuple[Path, Path]) -> None:
    mount(directories[0], VALUES)
    with pytest.raises(ServersUnreachable) as told:
        await prepare(NBD, children=Commands(hangs=True), seconds=0.01)
    assert told.value.disks == ("data",)
