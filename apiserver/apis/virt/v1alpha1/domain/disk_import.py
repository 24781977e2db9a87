"""Images that are downloaded into claims: ``source.import`` of a disk."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from pydantic import Field

from apiserver.apis.meta import quantity
from apiserver.apis.meta.schema import Model, Quantity
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid, required, too_long
from apiserver.apis.virt import disk_imports
from apiserver.apis.virt.v1alpha1.domain.cloud_init import validate_key, validate_object_name
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_amount

MIN_SIZE: Final = quantity.parse("1Mi")
MAX_SIZE: Final = quantity.parse("64Ti")
_HIDDEN: Final = "…"
_URL: Final = re.compile(r"[!-~]+")


class SecretReference(Model):
    """A Secret in the machine's namespace."""

    name: str = Field(description="The Secret's name.")


class ConfigMapKey(Model):
    """One value of a ConfigMap in the machine's namespace."""

    name: str = Field(description="The ConfigMap's name.")
    key: str | None = Field(None, description="The key of the value. Default ca.crt.")


class HTTPImport(Model):
    """An image on a web server."""

    url: str = Field(
        description="The address, http or https. It may redirect, five times, and not from https to http. Credentials belong into "
        "secretRef."
    )
    secret_ref: SecretReference | None = Field(
        None,
        description="The Secret with credentials: username and password, or token, which is sent as a bearer token. Servers that the "
        "address redirects to are not sent them.",
    )
    ca_config_map_ref: ConfigMapKey | None = Field(
        None,
        description="The certificates (PEM) of the authorities by which the server is verified. Default: those of virt-launcher's image.",
    )


class DiskImport(Model):
    """The image that is downloaded into a claim without one."""

    http: HTTPImport | None = Field(None, description="From a web server. Required.")
    checksum: str | None = Field(
        None,
        description="What the downloaded file must have: sha256: or sha512: and the digest in hexadecimal. Default: it is not looked at.",
    )
    size: Quantity | None = Field(
        None,
        description="The size of the disk: one of a smaller image is grown to it, and one of a larger image refused. Default: the image's.",
    )


def validate(given: Object, path: Path) -> list[FieldError]:
    """Return what is wrong with an import."""
    found: list[FieldError] = []
    if not given.get("http"):
        found.append(required(path.child("http"), "where the image is"))
    else:
        found += _validate_http(given["http"], path.child("http"))
    if (checksum := given.get("checksum")) is not None and not _is_checksum(checksum):
        kinds = " or ".join(f"{name}: and {digits}" for name, digits in disk_imports.CHECKSUMS.items())
        found.append(invalid(path.child("checksum"), checksum, f"must be {kinds} hexadecimal digits"))
    if given.get("size") is not None:
        found += validate_amount(given["size"], MIN_SIZE, MAX_SIZE, path.child("size"))
    return found


def _validate_http(given: Object, path: Path) -> list[FieldError]:
    found = validate_url(given["url"], path.child("url"))
    if (secret := given.get("secretRef")) is not None:
        found += validate_object_name("Secret", secret["name"], path.child("secretRef", "name"))
    if (authorities := given.get("caConfigMapRef")) is not None:
        place = path.child("caConfigMapRef")
        found += validate_object_name("ConfigMap", authorities["name"], place.child("name"))
        found += validate_key(authorities.get("key"), place.child("key"))
        if not given["url"].lower().startswith("https:"):
            found.append(forbidden(place, "needs a URL of https"))
    return found


def validate_url(url: str, path: Path) -> list[FieldError]:
    """Return what is wrong with an address; it is not repeated, because it may hold what is secret."""
    if not url:
        return [required(path)]
    if len(url) > disk_imports.MAX_URL:
        return [too_long(path, disk_imports.MAX_URL)]
    try:
        parts, wrong = urlsplit(url), ""
        parts.port  # noqa: B018  # raises what is no port
    except ValueError:
        parts, wrong = urlsplit(""), "must be a URL"
    if not wrong and (not _URL.fullmatch(url) or parts.scheme not in ("http", "https") or not parts.hostname):
        wrong = "must be a URL of http or https, of ASCII characters without spaces"
    if not wrong and "@" in parts.netloc:
        wrong = "must not hold credentials: secretRef names the Secret that has them"
    return [invalid(path, _HIDDEN, wrong)] if wrong else []


def _is_checksum(text: str) -> bool:
    algorithm, _, digest = text.partition(":")
    return re.fullmatch(rf"[0-9a-fA-F]{{{disk_imports.CHECKSUMS.get(algorithm, 0)}}}", digest) is not None and bool(digest)
