"""Methods on resources, one module per kind of verb.

``reading``, ``writing``, ``deleting`` and ``scaling`` answer with objects of a ``served`` resource; ``patches`` parses
PATCH bodies. ``watching`` serves watches, with frames of ``framing``. ``connecting`` serves streams: ``joining`` joins two
websockets, ``bounded`` bounds their input, ``streamlimits`` their number. The chain has authenticated and authorized
requests; streams check one more right, and count by user.
"""
