from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from apiserver.apis.core.resources import CONFIG_MAPS, NODES
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import name_of
from apiserver.client.config import Config
from apiserver.client.rest import Client, TransportError
from tests.fakes.kubeapi import FakeAPI


async def test_objects_are_created_read_changed_and_deleted() -> None:
    async with FakeAPI().serving() as config, Client(config, user_agent="test") as client:
        made = await client.create(CONFIG_MAPS, {"metadata": {"name": "m", "namespace": "ns"}, "data": {"a": "1"}}, field_manager="me")
        assert made["metadata"]["namespace"] == "ns"
        patched = await client.patch(CONFIG_MAPS, "m", {"data": {"a": None, "b": "2"}}, "ns")
        assert patched["data"] == {"b": "2"}
        with pytest.raises(errors.Conflict):
            await client.update(CONFIG_MAPS, made)
        await client.update(CONFIG_MAPS, {**patched, "data": {}})
        assert (await client.get(CONFIG_MAPS, "m", "ns"))["data"] == {}
        await client.delete(CONFIG_MAPS, "m", "ns")
        with pytest.raises(errors.NotFound, match='"m" not found'):
            await client.get(CONFIG_MAPS, "m", "ns")


async def test_a_list_follows_its_pages() -> None:
    api = FakeAPI()
    async with api.serving() as config, Client(config, user_agent="test") as client:
        for number in range(7):
            await api.put("/api/v1/nodes", {"metadata": {"name": f"n{number}"}})
        listed = await client.list(NODES, limit=3)
        assert [name_of(each) for each in listed["items"]] == [f"n{number}" for number in range(7)]
        assert listed["items"][0]["kind"] == "Node"
        assert "continue" not in listed["metadata"]
        assert len(api.requests) == 3


async def test_list_pages_are_trimmed_as_they_arrive() -> None:
    api, whole = FakeAPI(), []

    def trim(obj: dict[str, Any]) -> dict[str, Any]:
        whole.append(len(api.requests))
        return {"metadata": {"name": name_of(obj)}}

    async with api.serving() as config, Client(config, user_agent="test") as client:
        for number in range(7):
            await api.put("/api/v1/nodes", {"metadata": {"name": f"n{number}", "labels": {"a": "b"}}})
        listed = await client.list(NODES, limit=3, trim=trim)
    assert listed["items"] == [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}} for number in range(7)]
    assert whole == [1, 1, 1, 2, 2, 2, 3]


async def test_expired_continue_token_restarts_the_list() -> None:
    class Forgetful(FakeAPI):
        def _list(self, request: web.Request, collection: str, namespace: str) -> web.Response:
            if "continue" in request.query:
                raise errors.Expired("the provided continue parameter is too old")
            return super()._list(request, collection, namespace)

    api = Forgetful()
    async with api.serving() as config, Client(config, user_agent="test") as client:
        for number in range(4):
            await api.put("/api/v1/nodes", {"metadata": {"name": f"n{number}"}})
        listed = await client.list(NODES, limit=3)
        assert [name_of(each) for each in listed["items"]] == [f"n{number}" for number in range(4)]


async def test_a_server_that_asks_for_patience_is_asked_again() -> None:
    api = FakeAPI()
    await api.put("/api/v1/nodes", {"metadata": {"name": "n"}})
    api.refusals = [web.Response(status=429, headers={"Retry-After": "0"}), web.Response(status=503, headers={"Retry-After": "0"})]
    async with api.serving() as config, Client(config, user_agent="test") as client:
        assert name_of(await client.get(NODES, "n")) == "n"
        assert len(api.requests) == 3


async def test_patience_ends() -> None:
    api = FakeAPI()
    api.refusals = [web.Response(status=429, headers={"Retry-After": "0"}) for _ in range(20)]
    async with api.serving() as config, Client(config, user_agent="test") as client:
        with pytest.raises(errors.TooManyRequests):
            await client.get(NODES, "n")
        assert len(api.requests) == 6


async def test_non_status_answer_becomes_an_error_that_shows_it() -> None:
    api = FakeAPI()
    api.refusals = [web.Response(status=502, text="upstream fell over")]
    async with api.serving() as config, Client(config, user_agent="test") as client:
        with pytest.raises(errors.StatusError, match="upstream fell over"):
            await client.get(NODES, "n")


async def test_rotated_token_is_reread_after_a_refusal(tmp_path: Path) -> None:
    class Strict(FakeAPI):
        async def _serve(self, request: web.Request) -> web.StreamResponse:
            if request.headers.get("Authorization") != "Bearer new":
                raise errors.Unauthorized("Unauthorized")
            return await super()._serve(request)

    token = tmp_path / "token"
    token.write_text("old")
    api = Strict()
    await api.put("/api/v1/nodes", {"metadata": {"name": "n"}})
    async with api.serving() as config, Client(Config(server=config.server, token_file=str(token)), user_agent="test") as client:
        with pytest.raises(errors.Unauthorized):
            await client.get(NODES, "n")
        token.write_text("new\n")
        assert name_of(await client.get(NODES, "n")) == "n"


async def test_a_refused_connection_says_what_was_asked() -> None:
    async with Client(Config(server="http://127.0.0.1:1"), user_agent="test") as client:
        with pytest.raises(TransportError, match="GET /api/v1/nodes/n"):
            await client.get(NODES, "n")
