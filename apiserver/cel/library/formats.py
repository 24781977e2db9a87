"""Named formats of strings: ``format.dns1123Label().validate(name)`` returns errors."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Final

from apiserver.apis.meta import names
from apiserver.cel import cost, times
from apiserver.cel.frame import Frame
from apiserver.cel.library.urls import parse_request_uri
from apiserver.cel.registry import NOMINAL, Library
from apiserver.cel.values import NONE, CelError, Opaque, Optional

LIBRARY: Final = Library()
_UUID: Final = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_DNS1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS1035_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an "
    "alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(slots=True, eq=False)
class Format(Opaque):
    """A named format of strings; ``errors`` returns why a text lacks it."""

    type_name: ClassVar[str] = "kubernetes.NamedFormat"
    name: str
    errors: Callable[[str], list[str]]
    pattern_size: int
    """Real or equivalent, for the cost."""

    def equals(self, other: Opaque) -> bool:
        """Return whether the formats' names are equal."""
        return isinstance(other, Format) and self.name == other.name


def _dns1035_errors(text: str) -> list[str]:
    found = [f"must be no more than {names.MAX_LABEL} characters"] if len(text) > names.MAX_LABEL else []
    return found if _DNS1035.fullmatch(text) else [*found, _DNS1035_RULE]


def _prefix(errors: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    return lambda text: errors(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)


def _uri_errors(text: str) -> list[str]:
    try:
        parse_request_uri(text)
    except CelError as error:
        return [str(error)]
    return []


def _byte_errors(text: str) -> list[str]:
    try:
        base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        return ["invalid base64"]
    return [] if text else ["invalid base64"]


def _date_errors(text: str) -> list[str]:
    try:
        date.fromisoformat(text)
    except ValueError:
        return ["invalid date"]
    return [] if _DATE.fullmatch(text) else ["invalid date"]


def _datetime_errors(text: str) -> list[str]:
    try:
        times.parse_timestamp(text.upper())
    except CelError:
        return ["invalid datetime"]
    return []


FORMATS: Final = {
    "dns1123Label": Format("DNS1123Label", names.label_errors, 30),
    "dns1123Subdomain": Format("DNS1123Subdomain", names.subdomain_errors, 60),
    "dns1035Label": Format("DNS1035Label", _dns1035_errors, 30),
    "qualifiedName": Format("QualifiedName", names.qualified_name_errors, 60),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", _prefix(names.label_errors), 30),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", _prefix(names.subdomain_errors), 60),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", _prefix(_dns1035_errors), 30),
    "labelValue": Format("LabelValue", names.label_value_errors, 40),
    "uri": Format("URI", _uri_errors, 1103),
    "uuid": Format("uuid", lambda text: [] if _UUID.fullmatch(text) else ["does not match the UUID format"], 72),
    "byte": Format("byte", _byte_errors, 84),
    "date": Format("date", _date_errors, 71),
    "datetime": Format("datetime", _datetime_errors, 71),
}


@LIBRARY.function("format.named", str)
def _named(frame: Frame, name: str) -> Optional:
    frame.cost += NOMINAL
    return Optional(FORMATS[name]) if name in FORMATS else NONE


for _name, _format in FORMATS.items():

    def _constant(value: Format) -> Callable[[Frame], Format]:
        def get(frame: Frame) -> Format:
            frame.cost += NOMINAL
            return value

        return get

    LIBRARY.function(f"format.{_name}")(_constant(_format))


@LIBRARY.member("validate", Format, str)
def _validate(frame: Frame, wanted: Format, text: str) -> Optional:
    frame.charge(cost.regex(len(text), wanted.pattern_size))
    problems = wanted.errors(text)
    return Optional(problems) if problems else NONE
