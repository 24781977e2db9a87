"""A key management service (version 2 of Kubernetes' plug-in API) with gRPC's own library.

It "encrypts" by an exclusive or with the digest of its key's name, so tests can read the result.
"""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio

from storage.encryption.kms.rpc import kms_pb2 as rpc

ANNOTATION = "version.example.com"


class FakeKms:
    def __init__(self) -> None:
        self.key_id = "1"
        self.healthz = "ok"
        self.keys = {"1", "2", "3"}
        self.down = False
        self.is_malformed = False
        self.decrypted: list[str] = []

    async def status(self, request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        await self._check(context)
        if self.is_malformed:
            return b"\xff"
        return rpc.StatusResponse(version="v2", healthz=self.healthz, key_id=self.key_id).SerializeToString()

    async def encrypt(self, request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        await self._check(context)
        plain = rpc.EncryptRequest.FromString(request).plaintext
        made = rpc.EncryptResponse(ciphertext=_mixed(self.key_id, plain), key_id=self.key_id, annotations={ANNOTATION: b"1"})
        return made.SerializeToString()

    async def decrypt(self, request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        await self._check(context)
        asked = rpc.DecryptRequest.FromString(request)
        if asked.key_id not in self.keys or asked.annotations[ANNOTATION] != b"1":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no key {asked.key_id}")
        self.decrypted.append(asked.key_id)
        return rpc.DecryptResponse(plaintext=_mixed(asked.key_id, asked.ciphertext)).SerializeToString()

    async def _check(self, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        if self.down:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "down")

    @asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[None]:
        server = grpc.aio.server()
        methods = {
            name: grpc.unary_unary_rpc_method_handler(each)
            for name, each in (("Status", self.status), ("Encrypt", self.encrypt), ("Decrypt", self.decrypt))
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v2.KeyManagementService", methods),))
        server.add_insecure_port(f"unix://{socket}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)


def _mixed(key_id: str, data: bytes) -> bytes:
    mask = hashlib.sha512(key_id.encode()).digest()
    return bytes(byte ^ mask[number % len(mask)] for number, byte in enumerate(data))
