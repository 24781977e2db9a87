"""Builds what the twin needs, once, into the cache: ``python -m tests.twin.build`` prints the path of the sample-apiserver."""

import dataclasses
import pathlib
import sys

from tests.testbed import build, caching, layout, progress

KUBERNETES = "0.36.3"
HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class LocalProgram(build.GoProgram):
    """A Go program whose module lies in a directory of its own, given relative to the repository."""

    module: str = ""

    def sources(self) -> pathlib.Path:
        """Directory of the Go module."""
        return layout.REPOSITORY / self.module


_VERSION = "k8s.io/component-base/version"
SAMPLE_APISERVER = LocalProgram(
    "sample-apiserver",
    KUBERNETES,
    ("k8s.io/sample-apiserver",),
    linker_flags=f"-X {_VERSION}.gitVersion=v1.36.3 -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36",
    module="tests/twin/go/sample-apiserver",
)


def program(recipe: LocalProgram) -> pathlib.Path:
    """Return the path of a program, building it first if need be.

    Raises:
        progress.StepFailed: the build failed; the message names the log.
    """
    directory = layout.cache() / f"{recipe.tool}-{recipe.version}-{recipe.digest()}"
    return caching.once(directory, f"Build {recipe.tool} {recipe.version}", recipe.make) / recipe.main


def main() -> int:
    """Build the twin and print where it is."""
    try:
        print(program(SAMPLE_APISERVER))
    except progress.StepFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
