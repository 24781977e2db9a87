"""Images that are downloaded into claims: ``source.import`` of a disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import Field

from apiserver.apis.meta import quantity
from apiserver.apis.meta.schema import Model, Quantity
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid, required, too_long
from apiserver.apis.virt.hardware import disk_imports
from apiserver.apis.virt.v1alpha1.domain.cloud_init import validate_key, validate_object_name
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_bytes, validate_image

MIN_SIZE: Final = quantity.parse("1Mi")
MAX_SIZE: Final = quantity.parse("64Ti")
MAX_OBJECT_KEY: Final = 1024
"""Bytes in S3."""
_HIDDEN: Final = "…"
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_REGION: Final = re.compile(r"[a-z0-9-]{1,63}")
_URL: Final = re.compile(r"[!-~]+")


class SecretReference(Model):
    """A Secret in the machine's namespace."""

    name: str = Field(description="The Secret's name.")


class ConfigMapKey(Model):
    """A value of a ConfigMap in the machine's namespace."""

    name: str = Field(description="The ConfigMap's name.")
    key: str | None = Field(None, description="The key of the value. Default ca.crt.")


class HTTPImport(Model):
    """An image on a web server."""

    url: str = Field(
        description="The address, http or https. Up to five redirects are followed, but not from https to http. Put credentials into "
        "secretRef."
    )
    secret_ref: SecretReference | None = Field(
        None,
        description="The Secret with credentials: username and password, or token, a bearer token. They are not sent to servers of "
        "redirects.",
    )
    ca_config_map_ref: ConfigMapKey | None = Field(
        None,
        description="Certificates (PEM) of the authorities that verify the server. Default: those of virt-launcher's image.",
    )


class S3Import(Model):
    """An image in an object store compatible with Amazon S3."""

    endpoint: str = Field(description="The address of the store, http or https. Requests name the bucket in the path, not in the host.")
    bucket: str = Field(description="The bucket.")
    key: str = Field(description="The key of the object.")
    region: str | None = Field(None, description="The region in signatures of requests. Default us-east-1.")
    secret_ref: SecretReference | None = Field(
        None,
        description="The Secret with credentials: accessKeyId, secretKey and, optionally, sessionToken. Default: unsigned requests, as "
        "for a public bucket.",
    )
    ca_config_map_ref: ConfigMapKey | None = Field(
        None,
        description="Certificates (PEM) of the authorities that verify the store. Default: those of virt-launcher's image.",
    )


class RegistryImport(Model):
    """An image in a container registry: a file below disk/, as in container disks."""

    reference: str = Field(description="The reference of the container image. The registry must use https.")
    secret_ref: SecretReference | None = Field(
        None, description="The Secret with credentials: username and password, or .dockerconfigjson as in a pod's pull secret."
    )
    ca_config_map_ref: ConfigMapKey | None = Field(
        None,
        description="Certificates (PEM) of the authorities that verify the registry. Default: those of virt-launcher's image.",
    )


class DiskImport(Model):
    """The image to download into a claim without an image, from one of http, s3 and registry."""

    http: HTTPImport | None = Field(None, description="From a web server. One of http, s3 and registry is required.")
    s3: S3Import | None = Field(None, description="From an object store.")
    registry: RegistryImport | None = Field(
        None,
        description="From a container registry. The checksum is that of the disk image; layers are always verified by their digests.",
    )
    format: Literal["raw", "qcow2"] | None = Field(
        None,
        description="Format of the decompressed image. Default: detected by its first bytes. Then an image is rejected unless it is qcow2 "
        "or begins with a partition table or file system. With raw, every content is accepted.",
    )
    checksum: str | None = Field(
        None,
        description="Checksum that the downloaded file must have: sha256: or sha512: and the digest in hexadecimal. Default: not checked.",
    )
    size: Quantity | None = Field(
        None,
        description="Size of the disk: a smaller image grows to it, and a larger one is rejected. A block device keeps its own size, so "
        "there it is only a maximum. Default: the image's.",
    )


def validate(given: Object, path: Path) -> list[FieldError]:
    """Return errors in ``given``, the ``source.import`` of a disk, at ``path``."""
    found: list[FieldError] = []
    kinds = [kind for kind in disk_imports.KINDS if given.get(kind) is not None]
    if not kinds:
        found.append(required(path.child(disk_imports.KINDS[0]), f"the source of the image: one of {', '.join(disk_imports.KINDS)}"))
    found += [forbidden(path.child(kind), f"may not be set together with {kinds[0]}") for kind in kinds[1:]]
    for kind in kinds:
        found += _VALIDATORS[kind](given[kind], path.child(kind))
    if (checksum := given.get("checksum")) is not None and not _is_checksum(checksum):
        wanted = " or ".join(f"{name}: and {digits}" for name, digits in disk_imports.CHECKSUMS.items())
        found.append(invalid(path.child("checksum"), checksum, f"must be {wanted} hexadecimal digits"))
    if given.get("size") is not None:
        found += validate_bytes(given["size"], MIN_SIZE, MAX_SIZE, path.child("size"))
    return found


def _validate_http(given: Object, path: Path) -> list[FieldError]:
    return validate_url(given["url"], path.child("url")) + _validate_references(given, given["url"], path)


def _validate_s3(given: Object, path: Path) -> list[FieldError]:
    found = validate_url(given["endpoint"], path.child("endpoint"))
    if not found and any(each in given["endpoint"] for each in "?#"):
        found.append(invalid(path.child("endpoint"), _HIDDEN, "must have no query"))
    if not _BUCKET.fullmatch(given["bucket"]):
        text = "must be 3 to 63 lower-case letters, digits, '.' or '-', and begin and end with a letter or digit"
        found.append(invalid(path.child("bucket"), given["bucket"], text))
    if not given["key"] or not given["key"].isprintable() or len(given["key"].encode()) > MAX_OBJECT_KEY:
        found.append(invalid(path.child("key"), given["key"], f"must be 1 to {MAX_OBJECT_KEY} bytes of printable characters"))
    elif any(each in (".", "..") for each in given["key"].split("/")):
        found.append(invalid(path.child("key"), given["key"], "must not contain '.' or '..' between slashes"))
    if (region := given.get("region")) is not None and not _REGION.fullmatch(region):
        found.append(invalid(path.child("region"), region, "must be 1 to 63 lower-case letters, digits or '-'"))
    return found + _validate_references(given, given["endpoint"], path)


def _validate_registry(given: Object, path: Path) -> list[FieldError]:
    return validate_image(given["reference"], path.child("reference")) + _validate_references(given, "https:", path)


def _validate_references(given: Object, url: str, path: Path) -> list[FieldError]:
    found: list[FieldError] = []
    if (secret := given.get("secretRef")) is not None:
        found += validate_object_name("Secret", secret["name"], path.child("secretRef", "name"))
    if (authorities := given.get("caConfigMapRef")) is not None:
        place = path.child("caConfigMapRef")
        found += validate_object_name("ConfigMap", authorities["name"], place.child("name"))
        found += validate_key(authorities.get("key"), place.child("key"))
        if not url.lower().startswith("https:"):
            found.append(forbidden(place, "requires an https URL"))
    return found


def validate_url(url: str, path: Path) -> list[FieldError]:
    """Return errors in a URL. They do not repeat it, because it may contain a secret."""
    if not url:
        return [required(path)]
    if len(url) > disk_imports.MAX_URL:
        return [too_long(path, disk_imports.MAX_URL)]
    try:
        parts, wrong = urlsplit(url), ""
        parts.port  # noqa: B018  # raises for an invalid port
    except ValueError:
        parts, wrong = urlsplit(""), "must be a URL"
    if not wrong and (not _URL.fullmatch(url) or parts.scheme not in ("http", "https") or not parts.hostname):
        wrong = "must be a URL of http or https, of ASCII characters without spaces"
    if not wrong and "@" in parts.netloc:
        wrong = "must not contain credentials: use secretRef"
    return [invalid(path, _HIDDEN, wrong)] if wrong else []


_VALIDATORS: Final[Mapping[str, Callable[[Object, Path], list[FieldError]]]] = {
    "http": _validate_http,
    "s3": _validate_s3,
    "registry": _validate_registry,
}


def _is_checksum(text: str) -> bool:
    algorithm, _, digest = text.partition(":")
    return re.fullmatch(rf"[0-9a-fA-F]{{{disk_imports.CHECKSUMS.get(algorithm, 0)}}}", digest) is not None and bool(digest)
