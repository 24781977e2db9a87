"""One request on its way through the chain: what is known about it, and what is to be told with its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta.users import ANONYMOUS, User
from apiserver.endpoints.audit.events import Record
from apiserver.endpoints.audit.policy import Level
from apiserver.endpoints.http.messages import Request, Response
from apiserver.endpoints.http.upgrade import End
from apiserver.endpoints.negotiation import Representation, negotiate
from apiserver.endpoints.requestinfo import RequestInfo
from apiserver.registry.generic.options import Caller

PATCHES: Final = "patch.webhook.admission.k8s.io/"
"""Annotations whose keys begin so carry parts of the object."""
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class RequestContext:
    """A request, who asks, and the warnings for its answer."""

    # Values of the class stand for what most requests do not have: setting them for each would cost.
    user: User = ANONYMOUS
    warnings: dict[str, None] | None = None
    annotations: Mapping[str, str] = _NONE
    """For the audit log."""
    waited: float = 0.0
    """Seconds in which others held it up: queues and webhooks."""
    waits: dict[str, float] | None = None
    """Causes of that wait, as the audit log names them."""
    authorize: Callable[[str], Awaitable[None]] | None = None
    """Raises Forbidden unless the caller may do a further verb to the same object; None: nobody asks."""
    withdrawn: Callable[[Sequence[str]], Coroutine[None, None, End]] | None = None
    """Waits, while a stream is open, until the caller may not do one of these verbs any more; returns what to say. None: nobody asks."""
    record: Record | None = None
    """Facts that the audit log keeps of it; None: nothing."""
    flow: bytes = b""
    """Header fields of the answer that say whose limit it counted against, as they go on the wire."""
    on_start: Callable[[int], None] | None = None
    on_initialized: Callable[[], None] | None = None

    def __init__(self, request: Request, info: RequestInfo, audit_id: str) -> None:
        self.request = request
        self.info = info
        self.audit_id = audit_id

    @property
    def accept(self) -> str:
        """The whole Accept header, several lines of it joined."""
        return self.request.fields.accept

    def represent(self, *transforms: str, stream: bool = False) -> Representation:
        """Return how the answer is to be written, among JSON, YAML and ``transforms``.

        Raises:
            NotAcceptable: none that the client takes.
        """
        return negotiate(self.request.fields.accept, transforms, stream=stream)

    @property
    def caller(self) -> Caller:
        """The client, for the store."""
        return Caller(self.user, self.request.headers.get("User-Agent", ""), self.warn, self.annotate, self.wait)

    def received(self, body: Any) -> None:  # noqa: ANN401 - any JSON value, or bytes of JSON
        """Tell the audit log what the request carries, before anything changes it: an object, or (bytes) a patch."""
        if self.record is not None:
            if isinstance(body, dict) and isinstance(metadata := body.get("metadata"), dict):
                self.record.about(metadata)
            self.record.request(body)

    def started(self, code: int) -> None:
        """Tell that the answer of a long-running request began."""
        if self.on_start is not None:
            self.on_start(code)

    def initialized(self) -> None:
        """Tell that a watch has sent what there was: from here on it costs little."""
        if self.on_initialized is not None:
            self.on_initialized()

    def annotate(self, key: str, value: str) -> None:
        """Add an annotation to the request's audit event; the first value of a key stays. Patches are objects as far as levels go."""
        if key.startswith(PATCHES) and (self.record is None or self.record.verdict.level < Level.REQUEST):
            return
        if key not in self.annotations:
            self.annotations = {**self.annotations, key: value}

    def wait(self, whom: str, seconds: float) -> None:
        """Note that somebody held the request up."""
        self.waited += seconds
        if self.waits is None:
            self.waits = {}
        self.waits[whom] = self.waits.get(whom, 0.0) + seconds

    def warn(self, message: str) -> None:
        """Tell the client something although all went well; once is enough."""
        if self.warnings is None:
            self.warnings = {}
        self.warnings[message] = None


Page = Callable[[RequestContext], Awaitable[Response]]
"""Answers a path outside of the API's resources: health, metrics, version, documents."""
