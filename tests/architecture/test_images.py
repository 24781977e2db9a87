"""Images hold their processes' imports: pyproject.toml has an extra per image."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import grimp
import pytest

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OURS = ("apiserver", "controller", "handler", "launcher", "importer", "storage", "certs")
PROCESSES = {
    "apiserver.server.__main__": "api",
    "controller.manager.__main__": "controller",
    "handler.__main__": "handler",
    "launcher.__main__": "launcher",
    "apiserver.kubectl.__main__": "",  # installed by `pip install .`
}


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*OURS, include_external_packages=True, exclude_type_checking_imports=True)


def canonical(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]).lower()


def installed(requirements: list[str]) -> set[str]:
    found: set[str] = set()
    left = [canonical(each) for each in requirements]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            try:
                left += [canonical(each) for each in requires(name) or () if "extra ==" not in each]
            except PackageNotFoundError:
                continue
    return found


@pytest.mark.parametrize(("process", "extra"), PROCESSES.items())
def test_a_process_is_installed_with_everything_that_it_imports(process: str, extra: str) -> None:
    requirements = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    brought, by_module = installed(requirements), packages_distributions()

    outside = {each for each in graph().find_upstream_modules(process) if each in by_module and each not in OURS}

    assert outside
    assert not {each for each in outside if not {canonical(name) for name in by_module[each]} & brought}


@pytest.mark.parametrize("image", ["virt-api", "virt-launcher"])
def test_images_that_read_time_zones_have_the_old_names_too(image: str) -> None:
    """virt-api, CEL and QEMU use zones. Debian has US/Eastern in a separate package."""
    directory = Path(__file__).parents[2] / "images" / image

    assert re.search(r"\btzdata-legacy\b", (directory / "Containerfile").read_text(encoding="utf-8"))
    locked = dict(line.split("=", 1) for line in (directory / "packages.lock").read_text(encoding="utf-8").split())
    assert locked["tzdata-legacy"] == locked["tzdata"]
