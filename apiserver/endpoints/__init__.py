"""HTTP: verbs, negotiation, discovery, OpenAPI, patches, watches, connections. Knows nothing of virtual machines.

A request goes through it in this order, which is one to read it in: ``http`` makes it of bytes, ``requestinfo`` says what it is about,
``filters`` who it is from and whether it may, ``application`` finds what answers it, and ``verbs`` answer. What the client gave is read by
``bodies`` (``yaml_reader``, ``duplicates``) and ``queries``, what it wants to see by ``negotiation`` and ``presenting``, and ``responses``
says it. ``context`` is the request on its way, ``audit`` has the events about it, ``watchmeters`` counts watches. ``discovery``,
``openapi`` and ``documents`` answer what there is.

A filter knows nothing of what answers, and what answers knows no filter. Objects come from the stores of :mod:`apiserver.registry.generic`.
"""
