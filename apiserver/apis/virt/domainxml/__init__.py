"""``spec.domainXML``: a domain in libvirt's XML, from an untrusted author.

``parsing`` reads the bytes, ``grammar`` checks elements, attributes and values, and ``rules`` their relations. All are allow-lists: new
features of libvirt are refused until reviewed. ``reading`` returns what the pod needs.

Paths are as in XPath: ``/domain/devices/disk[2]/source/@file``.
"""
