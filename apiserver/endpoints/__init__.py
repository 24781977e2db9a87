"""HTTP: verbs, negotiation, discovery, OpenAPI, patches, watches and connections of any kinds.

``http`` parses bytes, ``requestinfo`` derives attributes, ``filters`` authenticate and authorize, ``application``
routes, and ``verbs`` answer. ``bodies`` and ``queries`` parse input, ``negotiation`` and ``presenting`` choose the
representation, ``responses`` writes it.
"""
