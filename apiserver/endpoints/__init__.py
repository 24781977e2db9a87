"""HTTP: verbs, negotiation, discovery, OpenAPI, patches, watches and connections, independent of virtual machines.

In the order of a request: ``http`` parses bytes, ``requestinfo`` derives attributes, ``filters`` authenticate and
authorize, ``application`` routes, and ``verbs`` answer. ``bodies`` (``yaml_reader``, ``duplicates``) and ``queries`` parse
input, ``negotiation`` and ``presenting`` choose the representation, ``responses`` writes it. ``context`` holds a request,
``auditids`` makes its id; ``watchmeters`` counts watches. ``discovery``, ``openapi`` and ``documents`` describe the API.

Filters and verbs are independent. Objects come from the stores of :mod:`apiserver.registry.generic`.
"""
