"""The domain's life: prepare, start, watch, migrate, suspend and stop it.

Methods that carry out a request raise ``RequestRefused``: no guest stays here, libvirt failed, or for a reason that they name.
"""
