r"""The protocol between virt-handler and virt-launcher: messages and codec. No I/O.

Each line is one JSON object (UTF-8, ``\n``, at most ``codec.MAX_LINE_BYTES``, from virt-launcher ``codec.MAX_REPLY_BYTES``) on the unix
socket ``layout.LAUNCHER_SOCKET``. virt-handler is the client; any number of connections may be open.

1. virt-launcher sends ``Hello`` first. The client checks ``Hello.protocol`` before the rest, and disconnects if it does not support it
   (``messages.SPOKEN``). The guest continues, and the machine's status shows why its state is unknown.
2. The client sends ``Call``s with ids of its choice. Each gets one ``Reply`` or ``Refusal`` with that id, in any order. A ``Reply`` has the
   status after the request; long work (``Migrate``, ``Shutdown``) has only begun by then. A ``Read`` gets ``Content``, without a status.
3. virt-launcher sends the complete status as ``StatusChanged`` on each connection after each change. A slow reader misses intermediate
   ones, never the last.
4. Every request is idempotent; an ``Operate`` is carried out once for each id.
5. virt-handler disconnects a launcher that sends too much. The next ``Hello`` has the newest status.
6. The sides do not trust each other: a violation of these rules raises ``ProtocolError``, and the connection ends.
7. Unknown members of a known message are ignored, so a version may add some; other changes raise ``messages.PROTOCOL``. Known members are
   checked for their type, and are required unless they have a default.
8. Older launchers remain. The client sends requests, operations, reads and changes only to launchers that list them, in ``Hello.actions``
   (for ``messages.LATER_ACTIONS``), ``Hello.operations``, ``Hello.reads`` and ``DomainStatus.changes``.
"""
