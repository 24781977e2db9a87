"""``.venv`` of the work tree, which `make setup` makes once per change of the requirements."""

import subprocess
import sys

from tests.testbed import installing, layout, packages, progress

_DIRECTORY = layout.REPOSITORY / ".venv"
_PYTHON = _DIRECTORY / "bin" / "python"


def make() -> None:
    """Make or update it, with the Debian packages for compiling.

    Raises:
        progress.StepFailed: a package could not be installed or compiled.
    """
    packages.install_for_python()
    if not _works():
        with progress.step(f"Make a virtual environment of Python {sys.version_info.major}.{sys.version_info.minor}"):
            progress.run([sys.executable, "-m", "venv", "--clear", _DIRECTORY])
    with progress.step("Install the Python packages of requirements.txt"):
        # The pins also apply to build requirements, because libvirt's binding is compiled from source.
        installing.run(
            "--require-hashes", "--requirement", str(installing.PINS), "--build-constraints", str(installing.PINS), python=_PYTHON
        )
    with progress.step("Install this project and its commands"):
        # Its build backend is one of the pinned packages, so that nothing newer is fetched.
        installing.run("--no-build-isolation", "--no-deps", "--editable", str(layout.REPOSITORY), python=_PYTHON)


def _works() -> bool:
    """Return whether it is complete: an interrupted setup leaves a Python without pip, an upgrade of Python one that does not start."""
    try:
        return subprocess.run([_PYTHON, "-m", "pip", "--version"], check=False, capture_output=True).returncode == 0
    except OSError:
        return False
