"""The group ``kubevirt.io``: types, defaults, validation, and everything about it that two processes must agree on."""
