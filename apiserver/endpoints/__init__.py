"""HTTP: verbs, negotiation, discovery, OpenAPI, patches, watches and connections, without any code for virtual machines.

Read it in the order that a request takes: ``http`` parses the bytes, ``requestinfo`` derives the attributes, ``filters``
authenticate and authorize, ``application`` routes, and ``verbs`` answer. ``bodies`` (``yaml_reader``, ``duplicates``) and
``queries`` read the input, ``negotiation`` and ``presenting`` choose the representation, and ``responses`` writes it.
``context`` holds one request, ``audit`` its audit events; ``watchmeters`` counts watches. ``discovery``, ``openapi`` and
``documents`` serve the descriptions of the API.

Filters do not depend on verbs, and verbs do not depend on filters. Objects come from the stores of
:mod:`apiserver.registry.generic`.
"""
