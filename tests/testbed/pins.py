"""Exact versions and hashes of everything installed here and in our images.

- ``requirements.txt``: every Python distribution of the virtual environment, with hashes.
- ``images/<name>/requirements.txt``: the subset for one image.
- ``tests/testbed/plugin-requirements.txt``: the subset for the kubectl plugin in `make demo`.
- ``tests/mutants/requirements.txt``: cosmic-ray, separate from the virtual environment.
- ``images/<name>/packages.lock``: the Debian packages of the image's last build.

``make pins`` writes them, ``PINS_FLAGS=--upgrade`` with the newest versions that pyproject.toml allows.
"""

import argparse
import pathlib
import subprocess
import sys

from tests.mutants import environment
from tests.testbed import bill, images, layout, plugin, progress, project_images

_HEADER = "# Written by `make pins`: versions and hashes of what pyproject.toml asks for. pip installs no other file.\n"
_COMPILE = ("--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--quiet")


def write_python(*, upgrade: bool) -> None:
    whole = layout.REPOSITORY / "requirements.txt"
    everything = ("pyproject.toml", "--all-extras", "--group=dev", "--universal", "--python-version=3.11")
    _compile(whole, *everything, *(("--upgrade",) if upgrade else ()))
    for process in project_images.PROCESSES:
        if process.extra is not None:
            _compile(
                project_images.pins_path(process),
                "-",
                f"--constraints={whole}",
                f"--python-version={project_images.PYTHON}",
                "--python-platform=x86_64-manylinux_2_28",
                "--only-binary=:all:",
                wanted="\n".join(project_images.requirements(process.extra)),
            )
    _compile(plugin.PINS, "-", f"--constraints={whole}", "--universal", "--python-version=3.11", wanted="\n".join(plugin.requirements()))
    _compile(environment.PINS, "-", "--no-deps", "--universal", "--python-version=3.11", wanted="\n".join(environment.requirements()))


def _compile(output: pathlib.Path, *arguments: str, wanted: str = "") -> None:
    # uv prefers the versions in the output file, so it changes only what it must.
    command = [sys.executable, "-m", "uv", "pip", "compile", *_COMPILE, f"--output-file={output}", *arguments]
    done = subprocess.run(command, check=False, input=wanted, capture_output=True, text=True, cwd=layout.REPOSITORY)
    if done.returncode != 0:
        raise progress.StepFailed(f"pin {output.relative_to(layout.REPOSITORY)}: {done.stderr.strip()}")
    output.write_text(_HEADER + output.read_text().removeprefix(_HEADER))


def write_debian() -> None:
    for image in images.ensure([project_images.image_of(process.name) for process in project_images.PROCESSES]):
        lock = layout.REPOSITORY / "images" / project_images.name_of(image) / "packages.lock"
        lock.write_text("".join(f"{each}\n" for each in bill.debian_packages(bill.path_of(image.archive))))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.testbed.pins", description="Write the pins of Python and Debian packages anew.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    parser.add_argument("--python-only", action="store_true", help="leave packages.lock of the images as they are")
    given = parser.parse_args()
    try:
        write_python(upgrade=given.upgrade)
        if not given.python_only:
            write_debian()
    except progress.StepFailed as error:
        progress.say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
