from __future__ import annotations

from typing import Any

import orjson
import pytest
import yaml

from apiserver.apis.meta.errors import Conflict, Details, TooManyRequests
from apiserver.endpoints import requestinfo
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.http.heads import Fields, Head
from apiserver.endpoints.http.messages import Request, Response
from apiserver.endpoints.responses import LARGE, compressed, dump, etag_of, status_of, warning, warnings


def context(path: str = "/", **headers: str) -> RequestContext:
    carrier: Any = None
    fields = Fields([("Host", "h"), *((name.replace("_", "-"), value) for name, value in headers.items())])
    request = Request(Head("GET", path, fields, old=False), carrier)
    return RequestContext(request, requestinfo.of(request), "id")


def test_wrn_01_a_warning_is_quoted_and_cannot_break_the_header() -> None:
    assert warning('unknown field "a\\b"') == '299 - "unknown field \\"a\\\\b\\""'
    assert warning("a\r\nSet-Cookie: x") == '299 - "a??Set-Cookie: x"'
    assert warning("größer") == '299 - "größer"'


def test_wrn_01_few_warnings_are_whole_and_many_are_cut() -> None:
    assert warnings(["x" * 4000, "", "y" * 96]) == [warning("x" * 4000), warning("y" * 96)]
    many = warnings([*("x" * 1000 + str(each) for each in range(100)), "y"])
    assert set(many) == {warning("x" * 256)}
    assert len(many) == 4096 // 256


def test_retry_after_is_a_header_exactly_if_the_status_says_so() -> None:
    assert status_of(context(), TooManyRequests("later", Details(retry_after_seconds=3))).headers["Retry-After"] == "3"
    assert "Retry-After" not in status_of(context(), Conflict("no")).headers


@pytest.mark.parametrize(
    ("accept", "written"),
    [
        ("", "application/json"),
        ("application/yaml", "application/yaml"),
        ("application/json;q=0.1,application/yaml", "application/yaml"),
        ("text/html", "application/json"),
        ("application/yaml;as=Table;v=v1;g=meta.k8s.io", "application/json"),
    ],
)
def test_err_07_errors_use_the_accepted_encoding_or_json(accept: str, written: str) -> None:
    response = status_of(context(Accept=accept), Conflict("no"))
    read = yaml.safe_load if written == "application/yaml" else orjson.loads
    assert isinstance(response.body, bytes)
    assert response.content_type == written
    assert read(response.body) == Conflict("no").to_json()


@pytest.mark.parametrize(
    ("path", "agent", "indented"), [("/", "a", False), ("/?pretty=1", "a", True), ("/", "curl/8", True), ("/?pretty=0", "curl/8", False)]
)
def test_errors_are_indented_for_people(path: str, agent: str, *, indented: bool) -> None:
    body = status_of(context(path, User_Agent=agent), Conflict("no")).body
    assert body == dump(Conflict("no").to_json(), pretty=indented)


def test_bodies_end_with_a_newline_and_tags_are_of_the_body() -> None:
    assert dump({"a": 1}) == b'{"a":1}\n'
    assert dump({"a": 1}, pretty=True).count(b"\n") == 3
    assert len(etag_of(b"x")) == 128
    assert etag_of(b"x") == etag_of(b"x").upper()


def test_no_client_has_more_warnings_than_it_can_read() -> None:
    assert len(warnings(map(str, range(1000)))) == 64


@pytest.mark.parametrize(("headers", "vary"), [({"Vary": "Accept"}, "Accept, Accept-Encoding"), ({}, "Accept-Encoding")])
async def test_large_answers_keep_their_vary_header(headers: dict[str, str], vary: str) -> None:
    response = await compressed(context().request, Response(body=bytes(LARGE), headers=headers))
    assert response.headers.getall("Vary") == [vary]
