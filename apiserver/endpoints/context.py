"""One request's state in the chain, and additions to its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta.users import ANONYMOUS, User
from apiserver.endpoints.http.messages import Request, Response
from apiserver.endpoints.http.upgrade import End
from apiserver.endpoints.negotiation import Representation, negotiate
from apiserver.endpoints.requestinfo import RequestInfo
from apiserver.registry.generic.options import Caller

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class RequestContext:
    """A request, its user, and the warnings for its answer."""

    # Class attributes, because setting them per request costs time.
    user: User = ANONYMOUS
    warnings: dict[str, None] | None = None
    annotations: Mapping[str, str] = _NONE
    """Of policies and webhooks, for the log."""
    waited: float = 0.0
    waits: dict[str, float] | None = None
    """Seconds by cause, such as webhooks."""
    authorize: Callable[[str], Awaitable[None]] | None = None
    """Raises Forbidden unless the caller may also use this verb; None: no check."""
    withdrawn: Callable[[Sequence[str]], Coroutine[None, None, End]] | None = None
    """Waits until the caller loses one of these verbs, and returns the stream's end. None: no check."""

    def __init__(self, request: Request, info: RequestInfo, audit_id: str) -> None:
        self.request = request
        self.info = info
        self.audit_id = audit_id

    @property
    def accept(self) -> str:
        """The whole Accept header, with multiple lines joined."""
        return self.request.fields.accept

    def represent(self, *transforms: str, stream: bool = False) -> Representation:
        """Negotiate the answer's form: JSON or YAML (not for a ``stream``), perhaps as one of ``transforms``. Raises NotAcceptable."""
        return negotiate(self.request.fields.accept, transforms, stream=stream)

    @property
    def caller(self) -> Caller:
        """The client's user, User-Agent and callbacks, for the store."""
        return Caller(self.user, self.request.headers.get("User-Agent", ""), self.warn, self.annotate, self.wait)

    def annotate(self, key: str, value: str) -> None:
        """Add an annotation to the log line; a key's first value stays."""
        if key not in self.annotations:
            self.annotations = {**self.annotations, key: value}

    def wait(self, whom: str, seconds: float) -> None:
        """Add seconds spent waiting for ``whom``, for the log and metrics."""
        self.waited += seconds
        if self.waits is None:
            self.waits = {}
        self.waits[whom] = self.waits.get(whom, 0.0) + seconds

    def warn(self, message: str) -> None:
        """Add a warning for the client, once per text."""
        if self.warnings is None:
            self.warnings = {}
        self.warnings[message] = None


Page = Callable[[RequestContext], Awaitable[Response]]
"""For paths outside the resources."""
