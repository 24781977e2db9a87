"""The request chain: authentication, authorization, limits, errors.

Start with ``chain``, which defines the order and turns exceptions into a Status. Steps: ``authentication`` (with
``certificates``, ``tokens``), ``origins``, ``impersonation``, ``limits``, ``authorization``, ``deadlines``. ``accounting`` and
``metering`` report finished requests; ``withdrawing`` rechecks open streams. ``reviewing`` sends reviews to kube-apiserver;
``expiring`` caches answers.

Filters import no verbs: ``chain`` gets the application as a parameter.
"""
