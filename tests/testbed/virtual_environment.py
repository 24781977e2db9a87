"""The virtual environment of the work tree, ``.venv``: what `make setup` makes, once for each change of the requirements."""

import subprocess
import sys
from collections.abc import Mapping

from tests.testbed import layout, packages, progress

_DIRECTORY = layout.REPOSITORY / ".venv"
_PYTHON = _DIRECTORY / "bin" / "python"
_PINS = layout.REPOSITORY / "requirements.txt"


def make() -> None:
    """Make it or bring it up to date, with the Debian packages that its parts are compiled with.

    Raises:
        progress.StepFailed: a package could not be installed or compiled; the message names the log.
    """
    packages.install_for_python()
    if not _works():
        with progress.step(f"Make a virtual environment of Python {sys.version_info.major}.{sys.version_info.minor}"):
            progress.run([sys.executable, "-m", "venv", "--clear", _DIRECTORY])
    with progress.step("Install the Python packages of requirements.txt"):
        # The constraints hold for what compiles them (the binding of libvirt comes as source) too; newer pips read the second one.
        constraints = {"PIP_CONSTRAINT": str(_PINS), "PIP_BUILD_CONSTRAINT": str(_PINS)}
        _pip("--requirement", str(_PINS), environment=constraints)
    with progress.step("Install this project and its commands"):
        # Its build backend is one of the pinned packages, so that nothing newer is fetched in passing.
        _pip("--no-build-isolation", "--no-deps", "--editable", str(layout.REPOSITORY), environment={})


def _works() -> bool:
    """Whether it is whole: an interrupted attempt leaves a Python without pip, an upgrade of Python one that does not start."""
    try:
        return subprocess.run([_PYTHON, "-m", "pip", "--version"], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def _pip(*arguments: str, environment: Mapping[str, str]) -> None:
    progress.run([_PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments], environment=environment)
