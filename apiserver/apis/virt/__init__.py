"""The group ``kubevirt.io``: types, defaults, validation, and everything about it that two processes must agree on.

To begin with: ``phases``, ``power`` (whether a machine should be on) and ``conditions`` are the words of a status, ``names``, ``layout``,
``network`` and ``streams`` those by which the processes find each other. ``v1alpha1`` has the models and rules that virt-api serves by,
``hardware`` what ``spec.domain`` means where it says nothing, ``domainxml`` reads ``spec.domainXML``, and ``described`` puts both together.
``node_rights`` and ``pod_rights`` are what a node and a status may say. Each of the other modules is one subject: evictions,
imports, probes, release, trust.

No I/O and nothing of other packages but :mod:`apiserver.apis`. pydantic is for ``v1alpha1``, which virt-api alone imports; everybody else
reads objects as plain JSON, once ``structure`` has looked at their shape.
"""
