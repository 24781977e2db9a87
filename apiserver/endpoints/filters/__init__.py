"""The request chain: authentication, authorization, limits, errors.

``chain`` is to be read first: it has the order, and the one place where whatever goes wrong becomes a Status. Then by step:
``authentication`` (with ``certificates`` and ``tokens``), ``auditing``, ``origins``, ``impersonation``, ``limits`` or ``flowcontrol``,
``authorization``, ``deadlines``. ``accounting`` and ``metering`` tell of a request that is over, ``withdrawing`` judges again whoever
holds a stream open. ``reviewing`` asks kube-apiserver, ``expiring`` remembers its answers for a while.

A filter imports nothing of what answers: the application is given to ``chain``.
"""
