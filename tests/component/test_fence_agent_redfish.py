from __future__ import annotations

import json
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from controller.reconcilers.fencing.fence_agent import Executable, Failed
from tests.component.handler.tls import Authority
from tests.fakes import board
from tests.fakes.board import Board

EXAMPLE = Path(__file__).parents[2] / "examples" / "fence_agents" / "redfish.py"
NODE: dict[str, Any] = {"metadata": {"name": "node1"}}
STRICT = """
import ssl
made = ssl.create_default_context
def strict(**of):
    context = made(**of)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context
ssl.create_default_context = strict
"""
"""Turns on Python 3.13's stricter checks of certificates, as in our images."""


class Installed:
    def __init__(self, root: Path) -> None:
        self.secret = root / "secret"
        self.secret.mkdir()
        self.certificates = Authority(root).virt_api()
        assert self.certificates.authorities is not None
        (self.secret / "ca.crt").write_bytes(self.certificates.authorities.read_bytes())
        self._path = root / "redfish"
        self._path.write_text(f"#!/bin/sh\nexec {EXAMPLE} {self.secret}\n")
        self._path.chmod(0o755)

    def serving(self, made: Board) -> AbstractContextManager[str]:
        return board.serving(made, self.certificates.certificate, self.certificates.key, "secret")

    def use_strict_python(self, directory: Path) -> None:
        (directory / "sitecustomize.py").write_text(STRICT)
        self._path.write_text(f"#!/bin/sh\nPYTHONPATH={directory} exec {EXAMPLE} {self.secret}\n")

    def agent(self, system: str, seconds: float = 30, **data: Any) -> Executable:
        found = {"system": system, "user": "fence", "password": "secret", **data}
        (self.secret / "nodes.json").write_text(json.dumps({"node1": found}))
        return Executable(self._path, seconds)


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


async def test_the_agent_waits_until_the_board_reports_off(installed: Installed) -> None:
    made = Board(reads_until_off=2)
    with installed.serving(made) as system:
        await installed.agent(system).switch_off(NODE)
    assert (made.power, made.resets) == ("Off", ["ForceOff"])


async def test_a_node_that_is_off_already_is_switched_on_if_asked(installed: Installed) -> None:
    made = Board()
    made.power = "Off"
    with installed.serving(made) as system:
        await installed.agent(system).switch_off(NODE)
        assert made.resets == []
        await installed.agent(system, powerOn=True).switch_off(NODE)
    assert (made.power, made.resets) == ("On", ["On"])


async def test_a_node_that_stays_off_was_off(installed: Installed) -> None:
    made = Board()
    made.refused = "On"
    with installed.serving(made) as system:
        await installed.agent(system, powerOn=True).switch_off(NODE)
    assert (made.power, made.resets) == ("Off", ["ForceOff"])


async def test_a_board_that_never_switches_off_proves_nothing(installed: Installed) -> None:
    made = Board(reads_until_off=1000)
    with installed.serving(made) as system, pytest.raises(Failed, match="no answer within 3 s"):
        await installed.agent(system, seconds=3).switch_off(NODE)
    assert made.power == "On"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"password": "wrong"}, "401"),
        ({"system": "http://127.0.0.1:1/x"}, "does not begin with https"),
        ({"system": "https://127.0.0.1:1/x"}, "refused"),
    ],
)
async def test_the_reason_of_a_failure_reaches_the_administrator(installed: Installed, changes: dict[str, str], said: str) -> None:
    with installed.serving(Board()) as system:
        given: dict[str, Any] = {"system": system, **changes}
        with pytest.raises(Failed, match=said):
            await installed.agent(**given).switch_off(NODE)


async def test_a_board_with_another_authority_is_not_trusted(installed: Installed, tmp_path: Path) -> None:
    made = Board()
    (installed.secret / "ca.crt").unlink()
    with installed.serving(made) as system, pytest.raises(Failed, match="CERTIFICATE_VERIFY_FAILED"):
        await installed.agent(system).switch_off(NODE)
    assert made.resets == []


async def test_an_authority_without_key_usage_is_trusted(installed: Installed, tmp_path: Path) -> None:
    made, authority, own = Board(), tmp_path / "authority", tmp_path / "board"
    _certify(authority, "boards")
    _certify(own, "board", "-addext", "subjectAltName=IP:127.0.0.1", "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key")
    (installed.secret / "ca.crt").write_bytes(authority.with_suffix(".crt").read_bytes())
    installed.use_strict_python(tmp_path)
    with board.serving(made, own.with_suffix(".crt"), own.with_suffix(".key"), "secret") as system:
        await installed.agent(system).switch_off(NODE)
    assert made.power == "Off"


def _certify(path: Path, name: str, *more: str) -> None:
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{path}.key")
    subprocess.run(["openssl", "req", "-x509", *key, "-subj", f"/CN={name}", "-out", f"{path}.crt", *more], check=True, capture_output=True)


async def test_an_unknown_node_is_named(installed: Installed) -> None:
    with pytest.raises(Failed, match="has no node node2"):
        await installed.agent("https://127.0.0.1:1").switch_off({"metadata": {"name": "node2"}})


async def test_the_agent_follows_no_redirect(installed: Installed) -> None:
    """It would send the password to the other address, and take its answer for proof."""
    made, other = Board(), Board()
    other.power = "Off"
    with installed.serving(other) as elsewhere:
        made.redirect = elsewhere
        with installed.serving(made) as system, pytest.raises(Failed, match="302"):
            await installed.agent(system).switch_off(NODE)
    assert other.reads == 0
