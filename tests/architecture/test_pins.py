from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from apiserver.apis.virt.hardware import machine
from tests.architecture.test_images import canonical
from tests.mutants import environment
from tests.testbed import build, plugin, project_images

ROOT = Path(__file__).parents[2]
WITH_PYTHON = tuple(process for process in project_images.PROCESSES if process.extra is not None)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def pins(path: Path) -> dict[str, tuple[str, set[str]]]:
    found: dict[str, tuple[str, set[str]]] = {}
    text = "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    for entry in text.replace("\\\n", " ").splitlines():
        name, _, rest = entry.partition("==")
        assert rest, f"{path}: {entry!r} pins nothing"
        found[canonical(name)] = (rest.split()[0], set(HASH.findall(entry)))
    return found


def closure(wanted: list[str]) -> set[str]:
    python = {"python_version": project_images.PYTHON, "python_full_version": f"{project_images.PYTHON}.0"}
    found: set[str] = set()
    left = [(Requirement(each), "") for each in wanted]
    while left:
        requirement, extra = left.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({**python, "extra": extra}):
            continue
        name = canonical(requirement.name)
        found.add(name)
        left += [(Requirement(each), extra) for extra in ("", *requirement.extras) for each in requires(name) or ()]
    return found


@pytest.mark.parametrize(
    "path",
    [
        "requirements.txt",
        "tests/mutants/requirements.txt",
        "tests/testbed/plugin-requirements.txt",
        *(f"images/{process.name}/requirements.txt" for process in WITH_PYTHON),
    ],
)
def test_every_distribution_is_pinned_with_its_hashes(path: str) -> None:
    found = pins(ROOT / path)

    assert found
    assert not {name for name, (_, hashes) in found.items() if not hashes}


@pytest.mark.parametrize("process", WITH_PYTHON, ids=lambda process: process.name)
def test_image_pins_are_tested_ones_and_complete(process: project_images.Process) -> None:
    whole, image = pins(ROOT / "requirements.txt"), pins(project_images.pins_path(process))
    assert process.extra is not None

    assert {name: version for name, (version, _) in image.items()} == {name: whole[name][0] for name in image}
    assert all(hashes <= whole[name][1] for name, (_, hashes) in image.items())
    assert closure(project_images.requirements(process.extra)) == set(image)


def test_demo_plugin_pins_are_tested_ones_and_complete() -> None:
    whole, own = pins(ROOT / "requirements.txt"), pins(plugin.PINS)

    assert own == {name: whole[name] for name in own}
    assert closure(plugin.requirements()) <= set(own)


def test_mutant_requirements_are_pinned() -> None:
    assert {canonical(Requirement(each).name) for each in environment.requirements()} == set(pins(environment.PINS))


def test_everything_that_development_is_asked_for_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    asked += [each for extra in project["project"]["optional-dependencies"].values() for each in extra]

    assert {canonical(each) for each in asked} <= set(pins(ROOT / "requirements.txt"))


@pytest.mark.parametrize("process", project_images.PROCESSES, ids=lambda process: process.name)
def test_image_takes_base_and_packages_from_build_and_lock(process: project_images.Process) -> None:
    directory = ROOT / "images" / process.name
    text = (directory / "Containerfile").read_text(encoding="utf-8")

    assert re.search(r"^ARG BASE$", text, re.MULTILINE), "a default would be a tag, which moves"
    assert re.search(r"^ARG LOCKED=yes$", text, re.MULTILINE)
    assert "apt-get" not in text
    names = re.findall(r"/install-packages\.sh(?: \\\n)? +([^\\\n]*)\n?", text)
    locked = [line.partition("=")[0] for path in directory.glob("*.lock") for line in path.read_text(encoding="utf-8").split()]
    assert names
    assert set(" ".join(names).split()) <= set(locked)


def test_helm_is_pinned_by_its_hash() -> None:
    helm = build.PROGRAMS["helm"]

    assert isinstance(helm, build.HelmProgram)
    assert HASH.search(helm.requirement)


def test_a_release_has_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    chart = yaml.safe_load((ROOT / "charts" / "kubevirt" / "Chart.yaml").read_text(encoding="utf-8"))
    process = (ROOT / "launcher" / "main" / "serving" / "wire.py").read_text(encoding="utf-8")
    launcher = re.findall(r'^VERSION: Final = "(.+)"$', process, re.MULTILINE)

    assert [chart["version"], chart["appVersion"], *launcher] == [project] * 3


def test_the_licence_is_there_and_is_the_one_that_is_declared() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


APT = """#!/bin/sh
case "$1" in install) cat "$STATE/wanted" >>"$STATE/installed" ;; esac
"""
DPKG = """#!/bin/sh
cat "$STATE/installed"
"""


@pytest.mark.parametrize(
    ("got", "locked", "works"), [("b=2", "yes", True), ("b=3", "yes", False), ("b=3", "no", True), ("b=2\nc=1", "yes", False)]
)
def test_package_missing_from_the_lock_fails_a_release_build(tmp_path: Path, got: str, locked: str, *, works: bool) -> None:
    programs, here = tmp_path / "bin", tmp_path / "build"
    for directory in (programs, here):
        directory.mkdir()
    for name, text in (("apt-get", APT), ("dpkg-query", DPKG)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    # Nothing outside the test's directory may change.
    script = (
        (ROOT / "images" / "install-packages.sh")
        .read_text(encoding="utf-8")
        .replace("/etc/apt", f"{tmp_path}/apt")
        .replace("/var/", f"{tmp_path}/var/")
    )
    (tmp_path / "apt" / "preferences.d").mkdir(parents=True)
    (here / "install-packages.sh").write_text(script)
    (here / "packages.lock").write_text("a=1\nb=2\n")
    (tmp_path / "installed").write_text("a=1\n")
    (tmp_path / "wanted").write_text(f"{got}\n")

    done = subprocess.run(
        ["/bin/sh", str(here / "install-packages.sh"), "b"],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": f"{programs}:/usr/bin:/bin", "STATE": str(tmp_path), "LOCKED": locked},
    )

    assert (done.returncode == 0) == works, done.stderr
    assert works or "packages.lock does not have" in done.stderr


def test_accepted_machine_types_match_the_locked_qemu() -> None:
    locked = (ROOT / "images/virt-launcher/packages.lock").read_text(encoding="utf-8")
    found = re.search(r"^qemu-system-x86=\d+:(\d+\.\d+)\.", locked, re.MULTILINE)
    assert found is not None
    assert found.group(1) == machine.QEMU, "a further version of QEMU brings and drops machine types: qemu-system-x86_64 -machine help"
