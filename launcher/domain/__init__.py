"""The libvirt domain as data: XML from a specification, and libvirt's states. No I/O.

The caller looks up what depends on existing files (is the claim a block device?) and passes it as ``disk_origins.Found``.

A specification is ``spec.domain`` as virt-api stores it, but is not trusted: the XML writer escapes strings, paths cannot leave their
directories, and all functions raise ``InvalidSpecification`` with the path of an invalid field. ``not_migratable`` returns an empty string
if nothing prevents a live migration.
"""
