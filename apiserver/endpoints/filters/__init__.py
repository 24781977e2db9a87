"""The request chain: authentication, authorization, limits, errors."""
