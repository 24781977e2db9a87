"""A zstd compressor by libzstd, which dpkg needs and every machine has."""

from __future__ import annotations

import ctypes
from typing import Final

from importer.zstd import LIBRARY

MAGIC: Final = b"\x28\xb5\x2f\xfd"
_CHECKSUM: Final = 201
"""``ZSTD_c_checksumFlag``, the program's default."""


def compress(data: bytes) -> bytes:
    library = ctypes.CDLL(LIBRARY)
    library.ZSTD_createCCtx.restype = ctypes.c_void_p
    library.ZSTD_compressBound.restype = library.ZSTD_compress2.restype = ctypes.c_size_t
    library.ZSTD_compressBound.argtypes = (ctypes.c_size_t,)
    library.ZSTD_CCtx_setParameter.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    library.ZSTD_compress2.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
    library.ZSTD_freeCCtx.argtypes = (ctypes.c_void_p,)
    context = library.ZSTD_createCCtx()
    library.ZSTD_CCtx_setParameter(context, _CHECKSUM, 1)
    room = ctypes.create_string_buffer(library.ZSTD_compressBound(len(data)))
    size = library.ZSTD_compress2(context, room, len(room), data, len(data))
    library.ZSTD_freeCCtx(context)
    assert not library.ZSTD_isError(ctypes.c_size_t(size))
    return room.raw[:size]
