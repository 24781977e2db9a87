"""The group ``kubevirt.io``: types, defaults, validation, and all definitions that two processes must agree on.

- ``lifecycle``: the words of a status (``phases``, ``conditions``), and decisions about it (``power``, ``operations``). Start there.
- ``places``: names, paths, addresses and URLs that the processes share.
- ``spec``: parts of the spec as plain JSON.
- ``hardware``: defaults of ``spec.domain``; ``domainxml`` reads ``spec.domainXML``; ``spec.described`` combines both.
- ``rights``: what a node may write, and what a status may say of a pod.
- ``v1alpha1``: models and rules of virt-api. Only virt-api imports it, because it uses pydantic.

This package does no I/O, and imports only :mod:`apiserver.apis`. Other processes than virt-api read objects as plain JSON after
``structure`` has checked them.
"""
