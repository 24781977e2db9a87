from __future__ import annotations

import os

import pytest

from apiserver.apis.meta import descriptors


def test_descriptor_is_closed_also_after_an_error() -> None:
    with pytest.raises(ValueError, match="wrong"), descriptors.closing(os.open("/", os.O_PATH)) as opened:
        raise ValueError("wrong")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened)


def test_file_in_memory_is_read_from_its_start() -> None:
    content = bytes(range(256)) * 1000
    with descriptors.in_memory(content) as file:
        assert os.read(file, len(content) + 1) == content
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
