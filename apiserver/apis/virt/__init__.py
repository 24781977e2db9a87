"""The group ``kubevirt.io``: types, defaults, validation, and definitions that processes share.

- ``lifecycle``: the words of a status (``phases``, ``conditions``), and decisions about it (``power``, ``operations``). Start there.
- ``places``: names, paths, addresses and URLs.
- ``spec``: parts of the spec as plain JSON.
- ``hardware``: defaults of ``spec.domain``; ``domainxml`` reads ``spec.domainXML``; ``spec.described`` combines both.
- ``rights``: what a node may write, and what a status may say of a pod.
- ``v1alpha1``: models and rules. Only virt-api imports it, because it uses pydantic. Others read plain JSON that ``structure`` checked.

It imports only :mod:`apiserver.apis`.
"""
