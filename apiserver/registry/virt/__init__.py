"""Strategies, tables and subresources of virtual machines and migrations.

Start with ``virtualmachines`` and ``migrations``. ``streams`` and ``reads`` reach virt-handler by ``handlers``. Reads
of objects never look at pods.
"""
