"""A request to one server, and its answer without times, uids, revisions, etags and generated names."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tests.reference_server.certificates import ADMIN, HOST, Certificates
from tests.reference_server.rows import GROUP, Step

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME: Final = re.compile(r"20[2-9]\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(Z|\+00:00)")
_GENERATED: Final = re.compile(r"\bg-[a-z0-9]{5}\b")
_RUN: Final = frozenset({"resourceVersion", "continue"})
_KINDS_OWN: Final = frozenset({"generation"})
_DEPRECATED: Final = re.compile(r'299 - "wardle.example.com/v1alpha1 (?:Flunder|Fischer) is deprecated[^"]*"(, )?')
_HEADERS: Final = ("content-type", "retry-after", "warning", "cache-control")
"""Ours sends nosniff with every error, the reference server with plain ones."""


@dataclass(frozen=True)
class Answer:
    code: int
    headers: dict[str, str]
    text: str

    @property
    def is_yaml(self) -> bool:
        return "yaml" in self.headers.get("content-type", "")

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def body(self) -> Any:
        return normal(self.text if not self.is_yaml else json.dumps(yaml.safe_load(self.text), default=str))


class Asker:
    def __init__(self, port: int, made: Certificates, user: str = ADMIN) -> None:
        self._port = port
        self._tls = ssl.create_default_context(cafile=str(made.authority))
        if user:
            self._tls.load_cert_chain(made.certificate(user), made.key(user))

    def ask(self, step: Step, namespace: str, filled: Callable[[str], str]) -> Answer:
        collection = f"/apis/{GROUP}/v1alpha1/namespaces/{namespace}/flunders"
        path = (
            step.path
            if step.path.startswith("/")
            else collection + ("/" if step.path and not step.path.startswith("?") else "") + step.path
        )
        body = None
        if step.body is not None:
            body = filled(step.body if isinstance(step.body, str) else json.dumps(step.body)).encode()
        headers = {"Accept": step.accept, "User-Agent": "rows/1", **step.headers}
        if body is not None:
            headers["Content-Type"] = step.content_type
        connection = http.client.HTTPSConnection(HOST, self._port, context=self._tls, timeout=60)
        try:
            connection.request(step.method, filled(path), body, headers)
            response = connection.getresponse()
            text = response.read().decode()
            kept = {name: ", ".join(response.headers.get_all(name, [])) for name in _HEADERS if name in response.headers}
            if warnings := _DEPRECATED.sub("", kept.pop("warning", "")):
                kept["warning"] = warnings
            return Answer(response.status, kept, text)
        finally:
            connection.close()


def normal(text: str) -> Any:
    try:
        if text.startswith('{"type"'):
            return {"events": [_blank(json.loads(line)) for line in text.splitlines()]}
        return _blank(json.loads(text))
    except ValueError:
        return re.sub(r"resourceVersion: \S+", "resourceVersion: RV", _anonymous(text))


def _anonymous(text: str) -> str:
    return _GENERATED.sub("g-GENERATED", _TIME.sub("TIME", _UUID.sub("UID", text)))


def _without_kind(item: Any) -> Any:
    return {name: each for name, each in item.items() if name not in {"apiVersion", "kind"}} if isinstance(item, dict) else item


def _blank(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {_anonymous(name): _blank(each, name) for name, each in value.items() if name not in _KINDS_OWN}
    if isinstance(value, list):
        return _blank_list(value, key)
    if key in _RUN:
        return "RV" if value else value
    if not isinstance(value, str):
        return value
    text = _anonymous(value)
    return re.sub(r"\b\d{1,9}\b(?=\)|$|, current)|(?<=current: )\d+", "N", text) if key == "message" else text


def _blank_list(values: list[Any], key: str) -> list[Any]:
    listed = [_blank(each) for each in (_without_times_order(values) if key == "managedFields" else values)]
    if key == "causes" and all(isinstance(each, dict) and each.get("reason") == "FieldManagerConflict" for each in listed):
        listed.sort(key=lambda cause: str(cause.get("message")))
    # Go's typed lists omit the kind of each item; ours have it, like lists of custom resources.
    return [_without_kind(each) for each in listed] if key == "items" else listed


def _without_times_order(entries: list[Any]) -> list[Any]:
    """Return managedFields entries sorted without times; unchanged unless sorted by operation, time, manager, version and subresource.

    That is the order of k8s.io/apimachinery/pkg/util/managedfields.
    """
    if not all(isinstance(each, dict) for each in entries):
        return entries
    if entries != sorted(entries, key=lambda each: _words_of(each, "operation", "time", "manager", "apiVersion", "subresource")):
        return entries
    return sorted(entries, key=lambda each: _words_of(each, "operation", "manager", "apiVersion", "subresource"))


def _words_of(entry: dict[str, Any], *names: str) -> tuple[str, ...]:
    return tuple(str(entry.get(name) or "") for name in names)
