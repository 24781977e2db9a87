"""The process: options, certificates, serving, health, shutdown.

``__main__`` puts machinery and virtual machines together, and is to be read first. ``running`` is one process from its flags (``options``,
``compatibility``) to its end, ``assembly`` a server for any strategies, ``serving`` its connections, which ``connections`` bounds. What
they are made of: ``admitting``, ``policies`` (admission), ``fairness`` (flow control), ``trusting`` (authorities), ``ownership`` (fields'
managers), ``health``, ``metrics``, ``process``, ``log``, and the rooms ``storage``, ``audit`` and ``tracing``. ``dev`` is a server alone on
loopback.

Of virtual machines ``__main__`` knows, and of their flags ``options``; ``dev`` serves them unless it is told what else. A server of other
kinds is made of the rest (docs/own-kind.md). What only some servers want is imported when it is first wanted: encryption, the compiler of
policies, tracing.
"""
