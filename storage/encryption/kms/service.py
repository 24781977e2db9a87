"""The service: a gRPC server on a Unix socket."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from storage.encryption.ciphers import Undecryptable
from storage.encryption.kms.rpc import kms_pb2 as rpc
from storage.grpc import headers
from storage.grpc.calls import CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE, RpcError
from storage.grpc.link import Link, connect_unix
from storage.port import Unavailable

_MAX_SOURCE_BYTES: Final = 1024
_MAX_KEY_ID_BYTES: Final = 1024
_MAX_ANNOTATION_BYTES: Final = 32 * 1024
_OUTAGES: Final = (UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED)

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Source:
    """A stored key, encrypted by the service."""

    key_id: str
    """The service's name of its own key."""
    ciphertext: bytes
    annotations: tuple[tuple[str, bytes], ...] = ()
    kind: int = 1
    """0: the key of a value; 1: the seed of such keys."""

    def check(self) -> None:
        """Raise ValueError if a part is invalid, or exceeds Kubernetes' limits."""
        if not 0 < len(self.key_id.encode()) <= _MAX_KEY_ID_BYTES:
            raise ValueError(f"the key's name has {len(self.key_id)} characters, must have 1 to {_MAX_KEY_ID_BYTES}")
        if not 0 < len(self.ciphertext) <= _MAX_SOURCE_BYTES:
            raise ValueError(f"the encrypted key has {len(self.ciphertext)} bytes, must have 1 to {_MAX_SOURCE_BYTES}")
        if sum(len(name) + len(value) for name, value in self.annotations) > _MAX_ANNOTATION_BYTES:
            raise ValueError(f"the annotations have more than {_MAX_ANNOTATION_BYTES} bytes")
        if not all("." in name for name, _ in self.annotations):
            raise ValueError("an annotation's name is not a fully qualified domain name")
        if self.kind not in (0, 1):
            raise ValueError(f"a key of the unknown kind {self.kind}")


@dataclass(slots=True, eq=False)
class Service:
    """Calls one key management service; connects on demand."""

    socket: str
    """An abstract one begins with a zero byte."""
    timeout_seconds: float
    _link: Link | None = None
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def status(self) -> rpc.StatusResponse:
        """Return the ``StatusResponse``: health, and the current key's name. Raises Unavailable."""
        return await self._call("Status", b"", rpc.StatusResponse)

    async def encrypt(self, plain: bytes) -> Source:
        """Return ``plain`` encrypted by the service, as ``Source``. Raises Unavailable, or ValueError for an invalid answer."""
        request = rpc.EncryptRequest(plaintext=plain, uid=str(uuid.uuid4()))
        response = await self._call("Encrypt", request.SerializeToString(), rpc.EncryptResponse)
        source = Source(response.key_id, response.ciphertext, tuple(sorted(response.annotations.items())))
        source.check()
        return source

    async def decrypt(self, source: Source) -> bytes:
        """Return a stored key decrypted. Raises Undecryptable, or Unavailable without an answer."""
        request = rpc.DecryptRequest(
            ciphertext=source.ciphertext, uid=str(uuid.uuid4()), key_id=source.key_id, annotations=dict(source.annotations)
        )
        return (await self._call("Decrypt", request.SerializeToString(), rpc.DecryptResponse)).plaintext

    def close(self) -> None:
        """Close the connection."""
        if self._link:
            self._link.abort("the key management service was removed from the configuration")

    async def _call(self, method: str, request: bytes, answer: type[M]) -> M:
        doing = f"{method} of the key management service"
        block = headers.request(f"/v2.KeyManagementService/{method}", scheme="http", authority="localhost", metadata=())
        try:
            async with asyncio.timeout(self.timeout_seconds):
                link = await self._connected()
                body = await link.unary(block, request, asyncio.get_running_loop().time() + self.timeout_seconds)
            return answer.FromString(body)
        except RpcError as error:
            if method == "Decrypt" and error.status not in _OUTAGES:
                raise Undecryptable(f"{doing}: {error}") from error
            raise Unavailable(f"{doing}: {error}") from error
        except (OSError, DecodeError) as error:  # a TimeoutError is one
            raise Unavailable(f"{doing}: {str(error) or type(error).__name__}") from error

    async def _connected(self) -> Link:
        async with self._connecting:
            if self._link is None or not self._link.is_usable:
                self._link = await connect_unix(self.socket)
            return self._link
