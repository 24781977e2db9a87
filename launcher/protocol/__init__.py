r"""The wire between virt-handler and virt-launcher: messages and their codec. No I/O.

One JSON object a line (UTF-8, ``\n``, at most ``codec.MAX_LINE_BYTES``, from virt-launcher ``codec.MAX_REPLY_BYTES``) over the unix socket
``layout.LAUNCHER_SOCKET``. virt-handler is the client, any number of connections may be open, and virt-launcher outlives them all.

1. virt-launcher speaks first: ``Hello``. The client looks at ``Hello.protocol`` before anything else in it, and hangs up if it cannot speak
   it (``messages.SPOKEN``). The guest goes on, and its machine says why nothing is known of it.
2. The client sends ``Call``s, each with an id of its choosing. Each is answered once, by ``Reply`` or ``Refusal`` with that id, in any
   order. A ``Reply`` carries the status after the request was carried out; long work (``Migrate``, ``Shutdown``) is only begun by then.
   A ``Read`` of what the ``Hello`` offers is answered by ``Content`` instead, which has no status in it.
3. ``StatusChanged`` comes unasked on every connection whenever the status changed. A slow reader misses intermediate ones, never the
   last. It says everything: there is nothing to be learnt from the sequence of events that the newest status does not say.
4. Every request may be repeated without harm: what is already so is left alone.
5. Whoever says more than virt-handler wants to hear is hung up on, and says the newest in its next ``Hello``.
6. Neither side trusts the other: whatever breaks these rules raises ``ProtocolError``, after which the connection is worth nothing.
7. Unknown members of a known message are ignored, so that a release may add some; a change that needs more raises
   ``messages.PROTOCOL``. Known members are checked for their type, and none but those with a default may be missing.

``messages`` has the vocabulary, ``codec`` turns bytes into it and back. ``tests/unit/launcher/protocol`` states the rules as properties.
"""
