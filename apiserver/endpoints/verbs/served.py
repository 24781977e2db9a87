"""One served resource."""

from __future__ import annotations

from dataclasses import dataclass

from apiserver.apis.meta.strategic_patch import Shape
from apiserver.endpoints import responses
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.http.messages import Response
from apiserver.endpoints.negotiation import Representation
from apiserver.endpoints.presenting import Presenter, include_of
from apiserver.registry.cacher.items import Item
from apiserver.registry.generic.store import Store
from apiserver.registry.generic.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Served:
    """A store, and its objects' presentation."""

    store: Store
    presenter: Presenter
    shape: Shape
    """Its schema, for strategic merge patches."""

    @property
    def strategy(self) -> Strategy:
        """The resource's strategy."""
        return self.store.strategy

    async def answer_one(self, context: RequestContext, item: Item, representation: Representation, *, code: int = 200) -> Response:
        """Answer with one object in this representation. Raises BadRequest for a wrong ``includeObject``."""
        if not representation.transform:
            return await responses.answer(context, self.store.shown_bytes(item, b"\n"), code=code, media_type=representation.media_type)
        include = include_of(context.request.query.get("includeObject"))
        shown = self.presenter.one(self.store.shown(item), representation, include)
        return await responses.answer(context, shown, code=code, media_type=representation.media_type)
