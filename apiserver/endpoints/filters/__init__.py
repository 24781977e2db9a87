"""The request chain: authentication, authorization, limits, errors.

``chain`` has the order and turns exceptions into a Status. Filters import no verbs: it gets the application as a parameter.
"""
