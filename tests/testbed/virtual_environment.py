"""``.venv`` of the work tree, which `make setup` makes once per change of the requirements."""

import subprocess
import sys

from tests.testbed import installing, layout, packages, progress

_DIRECTORY = layout.REPOSITORY / ".venv"
_PYTHON = _DIRECTORY / "bin" / "python"


def make() -> None:
    packages.install_for_python()
    if not _works():
        with progress.step(f"Make a virtual environment of Python {sys.version_info.major}.{sys.version_info.minor}"):
            progress.run([sys.executable, "-m", "venv", "--clear", "--without-pip", _DIRECTORY])
    with progress.step("Install the Python packages of requirements.txt"):
        # The pins also apply to build requirements, because libvirt's binding is compiled from source. Links take a tenth of a copy's time.
        pins = str(installing.PINS)
        installing.run("--link-mode=hardlink", "--require-hashes", "--requirement", pins, "--build-constraints", pins, python=_PYTHON)
    with progress.step("Install this project and its commands"):
        # Its build backend is one of the pinned packages, so nothing newer is fetched.
        installing.run("--no-build-isolation", "--no-deps", "--editable", str(layout.REPOSITORY), python=_PYTHON)


def _works() -> bool:
    """Return whether ``.venv`` is complete, by starting pip, which is pinned and fails after an upgrade of Python."""
    try:
        return subprocess.run([_PYTHON, "-m", "pip", "--version"], check=False, capture_output=True).returncode == 0
    except OSError:
        return False
