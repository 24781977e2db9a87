"""Methods on resources, one module per kind of verb.

``reading``, ``writing``, ``deleting`` and ``scaling`` answer with objects; ``served`` is the resource that each gets, and
``patches`` parses the body of a PATCH. ``watching`` serves watches, and ``framing`` encodes their frames. ``connecting``
serves streams: ``joining`` joins two websockets, ``bounded`` bounds their input, and ``streamlimits`` their number. The
chain has already authenticated and authorized the request; only streams check one more right, and count by user.
"""
