"""A Java program with fabric8's Kubernetes client."""

from __future__ import annotations

import hashlib
import pathlib
import shutil
from collections.abc import Sequence
from typing import Final

from tests.testbed import caching, layout, packages, progress

SOURCES: Final = layout.REPOSITORY / "tests" / "clients" / "fabric8"
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def command(*arguments: str) -> Sequence[str]:
    """Return the command line of the program ``Life``, built if necessary. The kubeconfig's key must be of an elliptic curve."""
    packages.install_for_java()
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(SOURCES.iterdir()))).hexdigest()[:8]
    directory = caching.once(layout.cache() / f"fabric8-{digest}", "Build fabric8's client", _make)
    return ["java", "-Dkubernetes.certs.client.key.algo=EC", "-cp", f"{directory}:{directory}/lib/*", "Life", *arguments]


def _make(directory: pathlib.Path) -> None:
    repository = directory / "repository"
    maven = ["mvn", "--quiet", "--batch-mode", f"-Dmaven.repo.local={repository}", f"-DoutputDirectory={directory}/lib"]
    progress.run([*maven, "--file", SOURCES / "pom.xml", "-DincludeScope=runtime", _COPY])
    progress.run(["javac", "-d", directory, "-cp", f"{directory}/lib/*", SOURCES / "Life.java"])
    shutil.rmtree(repository)
