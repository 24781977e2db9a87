"""Keys from the real openssl, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from cryptography.hazmat.primitives import serialization

from certs import requests
from controller.reconcilers.certificates.node_certificate_plan import profile_of
from handler.identity import keys

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


def open_files() -> list[str]:
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the directory itself
            found.append(str(each.readlink()))
    return found


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("node", ["node1", "ip-10-0-0-1.eu-west-1.compute.internal", ".".join(["a" * 60] * 3 + ["b" * 57])])
def test_signed_request_matches_the_made_key(loop: Callable[[], asyncio.AbstractEventLoop], node: str) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        made, again = runner.run(keys.make(node)), runner.run(keys.make(node))

    verified = requests.verify(made.request, profile_of(node))
    assert verified.faults == ()
    private = serialization.load_pem_private_key(made.key, password=None)
    assert private.public_key() == verified.public_key
    assert made.key != again.key
    assert not [each for each in open_files() if "identity" in each]
    assert made.key.decode()[40:80] not in repr(made)


@pytest.mark.parametrize("loop", LOOPS)
def test_failing_or_hanging_openssl_is_reported(
    loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "openssl"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with asyncio.Runner(loop_factory=loop) as runner:
        for script, said in (
            (("echo no >&2; exit 3"), "ended with 3: no"),
            ("exit 0", "ended with 0"),
            ("exec sleep 60", "did not end within"),
        ):
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
            with pytest.raises(keys.KeyFailed, match=said):
                runner.run(keys.make("node1", openssl_seconds=0.3))
