"""Methods on resources: one module a kind of verb.

``reading``, ``writing``, ``deleting`` and ``scaling`` answer with objects; ``served`` is the resource that each is given, and ``patches``
what the body of a PATCH asks for. ``watching`` is a watch, with ``framing`` for what of it reaches the client. ``connecting`` is a stream:
two websockets that ``joining`` joins, ``bounded`` by what is read of them, as many as ``streamlimits`` lets be. No verb asks who the
client is or whether it may: the chain has done so.
"""
