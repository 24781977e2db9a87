"""The hardware that ``spec.domain`` describes, with the defaults of what it leaves unsaid. Pure; nothing given is changed.

One module for each family of fields, of the same name as in ``v1alpha1.domain``, ``launcher_pods`` and ``launcher.domain``.

The lists of devices are atomic, and their elements are stored as their author wrote them: ``kubectl apply`` compares such a list as a
whole, and would take every default that the server wrote into an element for a change, at each apply. So nobody reads those lists but
through here, virt-api's own rules included, and no default is typed twice. So are the values and bounds that both those rules and the
XML of the launcher, which believes nobody, hold a field to.

All functions take ``spec.domain`` as virt-api stores it.
"""
