"""The Go program ``informers``, built once into the test bed's cache."""

from __future__ import annotations

import dataclasses
import pathlib

from tests.testbed import build, caching, layout

CLIENT_GO = "0.36.3"


@dataclasses.dataclass(frozen=True)
class Informers(build.GoProgram):
    """The recipe; its sources lie here."""

    def sources(self) -> pathlib.Path:
        return pathlib.Path(__file__).parent / "go" / self.tool


RECIPE = Informers("informers", CLIENT_GO, (".",))


def binary() -> pathlib.Path:
    """Return the path of the program, building it first if need be."""
    directory = layout.cache() / f"{RECIPE.tool}-{RECIPE.version}-{RECIPE.digest()}"
    return caching.once(directory, f"Build {RECIPE.tool} with client-go {RECIPE.version}", RECIPE.make) / RECIPE.main
