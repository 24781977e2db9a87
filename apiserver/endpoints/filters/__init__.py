"""The request chain: authentication, authorization, limits, errors.

Start with ``chain``: it defines the order, and is the only place that turns exceptions into a Status. The steps are
``authentication`` (with ``certificates`` and ``tokens``), ``auditing``, ``origins``, ``impersonation``, ``limits`` or
``flowcontrol``, ``authorization`` and ``deadlines``. ``accounting`` and ``metering`` report finished requests;
``withdrawing`` rechecks the rights of open streams. ``reviewing`` sends reviews to kube-apiserver; ``expiring`` caches its
answers.

Filters import no verbs: ``chain`` receives the application as a parameter.
"""
