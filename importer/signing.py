"""Sign requests to object stores: AWS Signature Version 4, for GET without a body.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "s3"
EMPTY: Final = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Keys:
    """Credentials of an object store."""

    access: str
    secret: str
    session: str = ""


def path_of(bucket: str, key: str) -> str:
    """Return an object's path, encoded for signing."""
    return "/" + "/".join(quote(each, safe="-._~") for each in (bucket, *key.split("/")))


def headers(keys: Keys, region: str, host: str, path: str, now: datetime, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the headers of a signed GET of the encoded ``path``, without query; ``more`` are also signed."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    signed = {"host": host, "x-amz-content-sha256": EMPTY, "x-amz-date": stamp}
    if keys.session:
        signed["x-amz-security-token"] = keys.session
    signed |= {name.lower(): value.strip() for name, value in (more or {}).items()}
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    request = f"GET\n{path}\n\n{lines}\n{names}\n{EMPTY}"
    scope = f"{stamp[:8]}/{region}/{SERVICE}/aws4_request"
    to_sign = "\n".join((ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    signature = _hmac(key, to_sign).hex()
    found = {name: value for name, value in signed.items() if name != "host"}
    found["Authorization"] = f"{ALGORITHM} Credential={keys.access}/{scope},SignedHeaders={names},Signature={signature}"
    return found


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
