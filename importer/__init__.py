"""virt-importer: downloads a disk's image into a claim, once.

virt-launcher starts it before network, domain and guest exist. It reads untrusted data with bounded memory and disk. ``python -m importer``
reads a plan (``plan``) from standard input and reports on standard output (``reporting``). It only uses the standard library and
``certs.contexts``, because every node has its image.
"""
