"""The libvirt domain as data: XML from a specification, and the states it can be in. No I/O.

``document`` writes the XML, ``disks`` decides where each disk comes from, ``states`` names libvirt's states and reasons. What depends on
the files that are there (is the claim a block device? is the image qcow2?) is looked up by the caller and comes in as ``disks.Found``.

A specification is ``spec.domain`` as virt-api stores it. It was validated there; here it is still not trusted: strings are escaped by the
XML writer, paths cannot leave their directories, and what makes no sense raises ``InvalidSpecification`` with the path of the field.
"""
