"""The request chain: authentication, authorization, limits, errors. ``chain`` has the order."""
