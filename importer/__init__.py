"""virt-importer: downloads a disk's image into a claim, once.

virt-launcher starts it in its pod before network, domain and guest exist. It reads untrusted data with bounded memory and disk, and checks
formats by their headers. ``python -m importer`` reads a plan (``importer.plan``) from standard input and reports progress on standard
output (``importer.reporting``). It only uses the standard library and ``certs.contexts``, because every node has its image.
"""
