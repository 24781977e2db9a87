from __future__ import annotations

import asyncio
import os

import pytest

from apiserver.apis.meta import descriptors


def test_descriptor_is_closed_also_after_an_error() -> None:
    with pytest.raises(ValueError, match="wrong"), descriptors.closing(os.open("/", os.O_PATH)) as opened:
        raise ValueError("wrong")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened)


def test_functions_are_called_only_after_an_error() -> None:
    called: list[int] = []
    with descriptors.on_error(lambda: called.append(1)):
        pass
    assert called == []
    with pytest.raises(asyncio.CancelledError), descriptors.on_error(lambda: called.append(1), lambda: called.append(2)):
        raise asyncio.CancelledError
    assert called == [1, 2]


def test_file_in_memory_is_read_from_its_start() -> None:
    content = bytes(range(256)) * 1000
    with descriptors.in_memory(content) as file:
        assert os.read(file, len(content) + 1) == content
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
