"""The libvirt domain as data: XML from a specification, and libvirt's states. No I/O.

``document`` writes the XML, ``disks`` finds where each disk comes from, ``states`` names libvirt's states and reasons. The caller looks up
what depends on existing files (is the claim a block device? is the image qcow2?) and passes it as ``disks.Found``.

A specification is ``spec.domain`` as virt-api stores it. virt-api validated it, but this package does not rely on that: the XML writer
escapes strings, paths cannot leave their directories, and invalid values raise ``InvalidSpecification`` with the path of the field.
"""
