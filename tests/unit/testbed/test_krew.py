"""The rules are those of ``internal/index/validation`` of krew 0.4, https://github.com/kubernetes-sigs/krew."""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.testbed import krew
from tests.testbed.krew import PROGRAM

pytestmark = pytest.mark.slow  # it packs the archive

URI = "https://server.example/kubectl-virt.tar.gz"
REQUIREMENT = {
    "type": "object",
    "required": ["key", "operator", "values"],
    "properties": {"key": {"enum": ["os", "arch"]}, "operator": {"enum": ["In", "NotIn"]}, "values": {"type": "array", "minItems": 1}},
}
PLATFORM = {
    "type": "object",
    "additionalProperties": False,
    "required": ["uri", "sha256", "selector", "bin"],
    "properties": {
        "uri": {"type": "string", "pattern": r"^https://[^\s@]+\.(tar\.gz|zip)$"},
        "sha256": {"type": "string", "pattern": "^[a-f0-9]{64}$"},
        "bin": {"const": PROGRAM},
        "selector": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"matchExpressions": {"type": "array", "minItems": 1, "items": REQUIREMENT}, "matchLabels": {"type": "object"}},
        },
    },
}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "krew.googlecontainertools.github.com/v1alpha2"},
        "kind": {"const": "Plugin"},
        "metadata": {"type": "object", "properties": {"name": {"const": "virt"}}, "required": ["name"]},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["version", "shortDescription", "platforms"],
            "properties": {
                "version": {"type": "string", "pattern": r"^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$"},
                "shortDescription": {"type": "string", "pattern": r"^[^\r\n]+$"},
                "description": {"type": "string"},
                "caveats": {"type": "string"},
                "homepage": {"type": "string"},
                "platforms": {"type": "array", "minItems": 1, "items": PLATFORM},
            },
        },
    },
}


@pytest.fixture(scope="module")
def archive() -> bytes:
    return krew.packed(krew.content())


def test_manifest_is_valid_and_names_the_archive(archive: bytes) -> None:
    text = krew.manifest(archive, URI)
    manifest: Any = yaml.safe_load(text)
    jsonschema.validate(manifest, SCHEMA)
    assert not re.search(r"@[A-Z0-9]+@", text)
    assert manifest["spec"]["version"] == f"v{krew.project()['version']}"
    (platform,) = manifest["spec"]["platforms"]
    assert (platform["uri"], platform["sha256"]) == (URI, hashlib.sha256(archive).hexdigest())


def test_archive_has_nothing_for_one_system_or_of_this_machine(archive: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        members = found.getmembers()
    assert {each.name for each in members if not each.name.startswith("lib/")} == {PROGRAM, "LICENSE"}
    assert not [each.name for each in members if each.name.endswith((".so", ".pyc", ".pth", "RECORD", "direct_url.json"))]
    assert {(each.mtime, each.uid, each.gname) for each in members} == {(0, 0, "")}
    assert [each.name for each in members if each.mode == 0o755] == [PROGRAM]


def test_program_runs_through_a_link_with_nothing_installed(archive: bytes, tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        found.extractall(tmp_path / "store", filter="data")
    link = tmp_path / PROGRAM
    link.symlink_to(tmp_path / "store" / PROGRAM)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [getattr(sys, "_base_executable", sys.executable), "-S", "-E", str(link), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={"HOME": str(tmp_path)}, cwd="/")

    assert run("version", "--client").stdout == f"Client Version: {krew.project()['version']}\n"
    refused = run("stop", "web", "--server", "http://127.0.0.1:1")
    assert (refused.returncode, "refused" in refused.stderr) == (1, True), refused.stderr
    assert "Traceback" not in refused.stderr
