"""The libvirt domain as data: XML from a specification, and libvirt's states. No I/O.

``document`` writes the XML. The caller looks up what depends on existing files (is the claim a block device? is the image qcow2?) and
passes it as ``disk_origins.Found``.

A specification is ``spec.domain`` as virt-api stores it. This package does not rely on virt-api's validation: the XML writer escapes
strings, paths cannot leave their directories, and all functions raise ``InvalidSpecification`` with the path of an invalid field.
"""
