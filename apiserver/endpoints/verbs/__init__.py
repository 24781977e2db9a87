"""Methods on resources: one module a kind of verb.

``reading``, ``writing``, ``deleting`` and ``scaling`` answer with objects; ``served`` is the resource that each is given, and ``patches``
what the body of a PATCH asks for. ``watching`` is a watch, with ``framing`` for what of it reaches the client. ``connecting`` is a stream:
two websockets that ``joining`` joins, ``bounded`` by what is read of them, as many as ``streamlimits`` lets be. Who the client is and
whether it may has been found out by the chain; a stream alone asks for one right more, and is counted by its user.
"""
