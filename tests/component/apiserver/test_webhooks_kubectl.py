from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from certs.issuing import Profile
from tests.component.apiserver import webhooks
from tests.component.apiserver.conftest import Api, Pki
from tests.component.apiserver.webhooks import World, allow, deny
from tests.component.apiserver.widgets import widget
from tests.testbed import build

pytestmark = pytest.mark.slow


@pytest.fixture
async def world(pki: Pki, tmp_path: Path) -> AsyncIterator[World]:
    async with webhooks.world(pki, tmp_path) as made:
        yield made


async def kubectl(api: Api, pki: Pki, directory: Path, *arguments: str, stdin: str) -> tuple[int, str]:
    certificate, key = pki.issued("kubectl", Profile("developer", client=True))
    document = {
        "clusters": [{"name": "c", "cluster": {"server": api.url, "certificate-authority": str(pki.authority_file)}}],
        "users": [{"name": "u", "user": {"client-certificate": str(certificate), "client-key": str(key)}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "acc"}}],
        "current-context": "x",
    }
    (directory / "client").write_text(json.dumps(document))
    process = await asyncio.create_subprocess_exec(
        str(build.program("kubernetes", "kubectl")), *arguments,
        env=os.environ | {"KUBECONFIG": str(directory / "client"), "HOME": str(directory)},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate(stdin.encode())
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_a_refusal_and_a_warning_reach_a_person(world: World, tmp_path: Path) -> None:
    await world.validating(world.hook("v", lambda review: deny(review, message="not on a Friday")))
    async with world.api() as api:
        body = json.dumps(widget())
        code, output = await kubectl(api, world.pki, tmp_path, "create", "-f", "-", stdin=body)
        assert code == 1
        assert 'admission webhook "v.example.test" denied the request: not on a Friday' in output
        world.hooks["v"].reply = lambda review: allow(review, warnings=["Friday is near"])
        code, output = await kubectl(api, world.pki, tmp_path, "apply", "-f", "-", stdin=body)
        assert (code, output) == (0, "Warning: Friday is near\nwidget.example.test/w1 created\n")
