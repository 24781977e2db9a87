"""virt-importer: downloads a disk's image into a claim, once.

virt-launcher starts this separate process in the launcher pod before network, domain and guest exist. It reads untrusted
data, so its memory and disk use are bounded, and it checks formats by their headers before other tools see them. ``python
-m importer`` reads a plan (``importer.plan``) from standard input and reports progress on standard output, in lines of JSON
(``importer.reporting``). It only uses the standard library and ``certs.contexts``, because every node has its image.
"""
