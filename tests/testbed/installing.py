"""Installs Python distributions with pinned hashes only.

uv downloads into its cache, so three images and the virtual environment fetch each file once. pip installs uv itself, as the wheel pinned
in ``requirements.txt``.
"""

import hashlib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from tests.testbed import caching, layout, progress

TITLE = "Fetch uv, which installs Python packages"
PINS = layout.REPOSITORY / "requirements.txt"
_OF_PIP = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS", "cert": "SSL_CERT_FILE"}


def pinned(name: str, requirements: str) -> str:
    found = re.search(rf"^{re.escape(name)}==.*?(?<!\\)$", requirements, re.MULTILINE | re.DOTALL)
    if found is None:
        raise progress.StepFailed(f"{PINS.name} pins no {name}")
    return f"{found.group()}\n"


def uv() -> pathlib.Path:
    pins = pinned("uv", PINS.read_text())

    def fetch(directory: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
            wanted = pathlib.Path(scratch, "requirements.txt")
            wanted.write_text(pins)
            options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--require-hashes", "--only-binary=:all:"]
            progress.run([*_pip(pathlib.Path(scratch)), "install", *options, "--target", directory, "--requirement", wanted])

    name = f"uv-{hashlib.sha256(pins.encode()).hexdigest()[:12]}"
    return caching.once(layout.cache() / name, TITLE, fetch) / "bin" / "uv"


def _pip(scratch: pathlib.Path) -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    progress.run([sys.executable, "-m", "venv", scratch / "venv"])
    return [str(scratch / "venv" / "bin" / "python"), "-m", "pip"]


def install(target: pathlib.Path, pins: pathlib.Path, *options: str) -> None:
    run("--no-deps", "--require-hashes", "--target", str(target), *options, "--requirement", str(pins))
    (target / ".lock").unlink(missing_ok=True)


def run(*arguments: str, python: pathlib.Path | None = None, program: pathlib.Path | None = None) -> None:
    """Run ``uv pip install`` from its cache, or else from the index."""
    command = [program or uv(), "pip", "install", "--quiet", "--python", python or sys.executable, *arguments]
    environment = _configured()
    cached = subprocess.run([*command, "--offline"], env={**os.environ, **environment}, capture_output=True, check=False)
    if cached.returncode:
        progress.run(command, environment=environment)


def _configured() -> dict[str, str]:
    listed = ""
    if importlib.util.find_spec("pip"):
        command = [sys.executable, "-m", "pip", "config", "list"]
        listed = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    return {"UV_CACHE_DIR": str(layout.cache() / "uv"), "UV_LINK_MODE": "copy", **translated(listed, os.environ)}


def translated(listed: str, given: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, variable in _OF_PIP.items():
        for prefix in ("global", "install", ":env:"):
            match = re.search(rf"^{prefix}\.{key}='(.*)'$", listed, re.MULTILINE)
            if match:
                found[variable] = match.group(1)
        if value := given.get(f"PIP_{key.upper().replace('-', '_')}"):
            found[variable] = value
    if "UV_FIND_LINKS" in found:
        found["UV_FIND_LINKS"] = ",".join(found["UV_FIND_LINKS"].split())
    return {variable: value for variable, value in found.items() if variable not in given}
