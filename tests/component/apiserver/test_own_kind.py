"""The example of a custom kind runs, and is as short as docs/own-kind.md says."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver.apis.meta.errors import Conflict, Invalid, StatusError
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.client.config import Config
from apiserver.client.rest import Client, TransportError

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "own_kind" / "backups.py"
BACKUPS = Resource("store.example.com", "v1", "backups", "Backup")
OLD = Resource("store.example.com", "v1beta1", "backups", "Backup")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    command = [sys.executable, str(EXAMPLE), "--directory", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        assert process.stdout is not None
        told = process.stdout.readline() + process.stdout.readline()
        found = re.fullmatch(r"export KUBECONFIG=(.*)\nkubectl get backups\n", told)
        assert found, told
        try:
            yield Path(found[1])
        finally:
            process.terminate()
            assert process.wait(20) == 0


def backup(**spec: object) -> Object:
    return {"apiVersion": BACKUPS.api_version, "kind": "Backup", "metadata": {"name": "shop"}, "spec": {"database": "shop", **spec}}


async def connected(client: Client) -> None:
    while True:
        try:
            await client.list(BACKUPS)
        except (StatusError, TransportError):
            await asyncio.sleep(0.05)
            continue
        return


async def test_example_kind_is_served_with_all_kubectl_needs(kubeconfig: Path) -> None:
    async with Client(Config.load(str(kubeconfig)), user_agent="test") as client:
        await connected(client)
        made = await client.create(BACKUPS, backup(targets=[{"name": "a", "url": "s3://a"}]), "default")
        assert (made["spec"]["keep"], made["spec"]["schedule"]) == (7, "0 3 * * *")
        patch = {"spec": {"targets": [{"name": "b", "url": "s3://b"}]}}
        merged = await client.patch(BACKUPS, "shop", patch, "default", content_type="application/strategic-merge-patch+json")
        assert {each["name"] for each in merged["spec"]["targets"]} == {"a", "b"}
        with pytest.raises(Invalid, match=r"spec\.keep.*spec\.schedule"):
            await client.patch(BACKUPS, "shop", {"spec": {"keep": 0, "schedule": "daily"}}, "default")
        with pytest.raises(Invalid, match="field is immutable"):
            await client.patch(BACKUPS, "shop", {"spec": {"database": "other"}}, "default")
        found = await client.list(BACKUPS, "default", field_selector="spec.database=shop")
        assert [each["metadata"]["name"] for each in found["items"]] == ["shop"]
        ran = await client.request("POST", BACKUPS.path("default", "shop", "run"), body={})
        assert ran["status"]["phase"] == "Running"
        with pytest.raises(Conflict, match="runs already"):
            await client.request("POST", BACKUPS.path("default", "shop", "run"), body={})
        with pytest.raises(Conflict, match="runs already"):
            await client.request("POST", OLD.path("default", "shop", "run"), body={})
        assert (await client.get(OLD, "shop", "default"))["apiVersion"] == "store.example.com/v1beta1"


def test_the_example_is_as_short_as_it_claims() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 150
