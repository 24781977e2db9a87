"""The group ``kubevirt.io``: types, defaults, validation, and all definitions that two processes must agree on.

- ``phases``, ``power`` (whether a machine should be on), ``conditions``: the vocabulary of a status. Start there.
- ``names``, ``layout``, ``network``, ``streams``: how the processes find each other.
- ``v1alpha1``: models and rules of virt-api.
- ``hardware``: defaults of ``spec.domain``; ``domainxml`` reads ``spec.domainXML``; ``described`` combines both.
- ``node_rights``, ``pod_rights``: what a node may write, and what a status may say of a pod.
- Each other module has one subject, such as evictions, imports, probes, release or trust.

There is no I/O, and only :mod:`apiserver.apis` is imported. Only virt-api imports ``v1alpha1``, which uses pydantic; other processes read
objects as plain JSON after ``structure`` has checked them.
"""
