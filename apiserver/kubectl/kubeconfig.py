"""Import kubernetes_asyncio's kubeconfig reader without its models, which cost two seconds of processor time."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

_LIBRARY: Final = "kubernetes_asyncio"


class Reader(NamedTuple):
    """kubernetes_asyncio's class and modules for configurations; they have no types."""

    Configuration: Any
    incluster_config: Any
    kube_config: Any


@contextmanager
def reading() -> Iterator[Reader]:
    """Yield kubernetes_asyncio's kubeconfig reader, and delete its temporary key files afterwards."""
    library = reader()
    try:
        yield library
    finally:
        # The library deletes them at exit, but not when killed.
        if (remove := getattr(library.kube_config, "_cleanup_temp_files", None)) is not None:
            remove()


def reader() -> Reader:
    """Return kubernetes_asyncio's kubeconfig reader, importing only it; the whole library if its layout is unexpected.

    Other imports of the library stay complete.
    """
    if _LIBRARY in sys.modules:
        return _whole()
    try:
        return _light()
    except (ImportError, AttributeError):
        _forget()
        return _whole()
    finally:
        _forget()


def _whole() -> Reader:
    client = importlib.import_module(f"{_LIBRARY}.client")
    config = importlib.import_module(f"{_LIBRARY}.config")
    return Reader(client.Configuration, config.incluster_config, config.kube_config)


def _light() -> Reader:
    found = importlib.util.find_spec(_LIBRARY)
    if found is None or found.origin is None:
        raise ImportError(f"{_LIBRARY} is not installed")
    directory = Path(found.origin).parent
    _empty_package(_LIBRARY, directory)
    client: Any = _empty_package(f"{_LIBRARY}.client", directory / "client")
    client.Configuration = importlib.import_module(f"{_LIBRARY}.client.configuration").Configuration
    client.ApiClient = None  # for functions that make clients
    config = importlib.import_module(f"{_LIBRARY}.config")
    return Reader(client.Configuration, config.incluster_config, config.kube_config)


def _empty_package(name: str, directory: Path) -> ModuleType:
    spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(directory)]
    package = sys.modules[name] = importlib.util.module_from_spec(spec)
    return package


def _forget() -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == _LIBRARY]:
        del sys.modules[name]
