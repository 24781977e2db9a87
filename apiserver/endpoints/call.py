"""One request on its way through the chain: what is known about it, and what is to be told with its answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from apiserver.apis.meta.users import ANONYMOUS, User
from apiserver.endpoints.http import Request
from apiserver.endpoints.negotiation import Representation, negotiate
from apiserver.endpoints.requestinfo import RequestInfo
from apiserver.registry.generic.options import Caller


@dataclass(slots=True, eq=False)
class Call:
    """A request, who asks, and the warnings for its answer."""

    request: Request
    info: RequestInfo
    audit_id: str
    user: User = ANONYMOUS
    warnings: dict[str, None] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    """For the audit log."""
    waited: float = 0.0
    """Seconds in which others held it up: queues and webhooks."""

    @property
    def accept(self) -> str:
        """The whole Accept header, several lines of it joined."""
        return ", ".join(self.request.headers.getall("Accept", ()))

    def represent(self, *transforms: str, stream: bool = False) -> Representation:
        """Return how the answer is to be written, among JSON, YAML and ``transforms``.

        Raises:
            NotAcceptable: none that the client takes.
        """
        return negotiate(self.accept, frozenset(transforms), stream=stream)

    @property
    def caller(self) -> Caller:
        """Who asks, for the store."""
        return Caller(self.user, self.request.headers.get("User-Agent", ""), self.warn, self.annotate)

    def annotate(self, key: str, value: str) -> None:
        """Add an annotation to the request's audit event; the first value of a key stays."""
        self.annotations.setdefault(key, value)

    def warn(self, message: str) -> None:
        """Tell the client something although all went well; once is enough."""
        self.warnings[message] = None
