"""Certificates: issue, renew, reload. Pure rules, and atomic files."""
