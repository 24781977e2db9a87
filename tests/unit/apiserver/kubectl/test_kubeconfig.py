from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs import issuing

TOP = Path(__file__).parents[4]
READS = "from apiserver.kubectl import kubeconfig; library = kubeconfig.reader(); "
"""``merged`` is its result for a file."""
FILE = "apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts: []\ncurrent-context: here\n"


def printed(script: str, *path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, TOP)))}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_kubeconfig_is_read_without_the_models(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(FILE)
    reads = f"merged = library.kube_config.KubeConfigMerger({str(tmp_path / 'config')!r}).config; print(merged['current-context'])"
    loaded = (
        "; import sys; print([each for each in sys.modules if each.startswith('kubernetes_asyncio')], library.Configuration().verify_ssl)"
    )
    assert printed(READS + reads + loaded) == "here\n[] True"


@pytest.mark.parametrize("before", ["", "import kubernetes_asyncio.config; "], ids=["alone", "imported before"])
def test_no_key_file_remains_after_reading_a_kubeconfig(tmp_path: Path, before: str) -> None:
    """A killed process removes nothing."""
    now, lifetime = datetime.now(UTC), timedelta(days=1)
    authority = issuing.new_authority("authority", lifetime, now)
    leaf = issuing.issue(authority, issuing.Profile("jane", client=True), lifetime, now)
    ca, certificate, key = (base64.b64encode(each).decode() for each in (authority.certificate, leaf.certificate, leaf.key))
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "jane"}}],
        "clusters": [{"name": "one", "cluster": {"server": "https://one", "certificate-authority-data": ca}}],
        "users": [{"name": "jane", "user": {"client-certificate-data": certificate, "client-key-data": key}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    (tmp_path / "made").mkdir()
    script = f"""{before}
import asyncio, os, tempfile
from apiserver.kubectl import access, kubeconfig
tempfile.tempdir = {str(tmp_path / "made")!r}
for _ in range(2):
    found = asyncio.run(access.load(access.Selection(kubeconfig={str(tmp_path / "config")!r})))
    print(len(found.tls.get_ca_certs()), os.listdir(tempfile.tempdir))
"""
    assert printed(script).splitlines() == ["1 []", "1 []"]


def test_library_imported_afterwards_is_complete() -> None:
    assert (
        printed(READS + "from kubernetes_asyncio import client; print(client.V1Pod.__name__, client.ApiClient.__name__)")
        == "V1Pod ApiClient"
    )


def test_already_imported_library_is_used() -> None:
    script = "import kubernetes_asyncio.client; " + READS
    same = (
        "print(library.Configuration is kubernetes_asyncio.client.Configuration, sys.modules['kubernetes_asyncio'] is kubernetes_asyncio)"
    )
    assert printed(script + "import sys; " + same) == "True True"


@pytest.mark.parametrize("configuration", [None, ""], ids=["without the module", "without the class in it"])
def test_a_library_that_is_laid_out_otherwise_is_imported_whole(tmp_path: Path, configuration: str | None) -> None:
    package = tmp_path / "kubernetes_asyncio"
    for name in ("client", "config"):
        (package / name).mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "client/__init__.py").write_text("class Configuration: host = 'whole'\n")
    if configuration is not None:
        (package / "client/configuration.py").write_text(configuration)
    (package / "config/__init__.py").write_text("from kubernetes_asyncio.config import incluster_config, kube_config\n")
    for name in ("incluster_config", "kube_config"):
        (package / f"config/{name}.py").write_text("from kubernetes_asyncio.client import Configuration\n")
    assert printed(READS + "print(library.Configuration.host, library.kube_config.Configuration.host)", tmp_path) == "whole whole"
