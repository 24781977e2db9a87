"""The libvirt domain as data: XML from a specification, states. No I/O."""
