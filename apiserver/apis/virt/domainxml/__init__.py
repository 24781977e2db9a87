"""``spec.domainXML``: a domain in libvirt's own words, read without believing any of them. Pure.

``parsing`` reads the bytes (no document type, no entities, bounded), ``grammar`` says which elements and attributes may stand where and
with which values, and ``rules`` what has to fit together, in the XML and with what stands beside it. All of it is a list of what may be:
what libvirt learns tomorrow is refused until somebody has looked at it. ``reading`` returns what the pod needs to know of it.

A place is named as in XPath: ``/domain/devices/disk[2]/source/@file``.
"""
