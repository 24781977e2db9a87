"""The kubectl plugin for `make demo` and `make env`: a tenth of `make setup`'s virtual environment."""

import hashlib
import pathlib
import platform
import sys
import tomllib

from tests.testbed import caching, installing, layout

TITLE = "Fetch the Python packages of the kubectl plugin"
PINS = layout.SOURCES / "plugin-requirements.txt"

_PROGRAM = """#!{python} -I
import sys

sys.path[:0] = {paths!r}

from apiserver.kubectl.{module} import main

sys.exit(main())
"""


def requirements() -> list[str]:
    with (layout.REPOSITORY / "pyproject.toml").open("rb") as file:
        return [str(each) for each in tomllib.load(file)["project"]["dependencies"]]


def packages_path() -> pathlib.Path:
    identity = f"{sys.implementation.cache_tag} {platform.machine()}".encode() + PINS.read_bytes()
    return layout.cache() / f"plugin-{hashlib.sha256(identity).hexdigest()[:12]}"


def program() -> pathlib.Path:
    wanted = packages_path()
    caching.once(wanted, TITLE, lambda directory: installing.install(directory, PINS))
    _write("kubectl_complete-virt", "completing", wanted)
    return _write("kubectl-virt", "__main__", wanted)


def _write(name: str, module: str, packages: pathlib.Path) -> pathlib.Path:
    made = layout.state() / "bin" / name
    made.parent.mkdir(parents=True, exist_ok=True)
    new = made.with_suffix(".new")
    new.write_text(_PROGRAM.format(python=sys.executable, paths=[str(layout.REPOSITORY), str(packages)], module=module))
    new.chmod(0o755)
    new.replace(made)
    return made
