"""``spec.domainXML``: a domain in libvirt's XML, from an untrusted author. Pure.

``parsing`` reads the bytes (no document type, no entities, size limits), ``grammar`` defines the allowed elements, attributes and values,
and ``rules`` checks relations inside the XML and with the fields next to it. Everything is an allow-list: new features of libvirt are
refused until reviewed. ``reading`` returns what the pod needs.

Paths are as in XPath: ``/domain/devices/disk[2]/source/@file``.
"""
