"""The group ``kubevirt.io``: types, defaults, validation, and all definitions that two processes must agree on.

- ``lifecycle``: the words of a status (``phases``, ``conditions``), and decisions about it (``power``, ``operations``). Start there.
- ``places``: names, paths, addresses and URLs that the processes share; ``resources`` lists our kinds.
- ``spec``: parts of the spec as plain JSON. ``running`` tells the running hardware from the desired one.
- ``hardware``: defaults of ``spec.domain``; ``domainxml`` reads ``spec.domainXML``; ``spec.described`` combines both.
- ``rights``: what a node may write, and what a status may say of a pod.
- ``v1alpha1``: models and rules of virt-api. ``structure`` checks, ``kinds`` and ``typed`` type, and ``contract`` versions plain JSON.

There is no I/O, and only :mod:`apiserver.apis` is imported. Only virt-api imports ``v1alpha1``, which uses pydantic; other processes read
objects as plain JSON after ``structure`` has checked them.
"""
