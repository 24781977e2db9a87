"""Methods on resources, one module per kind of verb.

``patches`` parses PATCH bodies; ``framing`` encodes frames of watches. ``connecting`` serves streams: ``joining`` joins
two websockets, ``bounded`` bounds their input, ``streamlimits`` their number.
"""
