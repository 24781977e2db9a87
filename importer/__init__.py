"""virt-importer: downloads the image of a disk into a claim, once.

A process of its own in the launcher pod, started by virt-launcher before there is a network, a domain or a guest: it reads what strangers
wrote, so what it may take of memory and of the claim is bounded, and it judges formats by their headers before any tool sees them.
``python -m importer`` reads a plan (``importer.plan``) from its standard input and reports how far it is on its standard output, in lines
of JSON (``importer.reporting``). It is made of the standard library and ``certs.contexts`` alone: every node has
its image.
"""
