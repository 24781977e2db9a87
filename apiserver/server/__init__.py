"""The process: options, certificates, serving, health, shutdown.

``running`` is one process from its flags (``options``) to its end, ``assembly`` builds a server for any strategies, and
``serving`` its connections. Only ``__main__``, ``options`` and the default of ``dev`` refer to virtual machines
(docs/own-kind.md).
"""
