"""Launcher pods as virt-controller finds them: whose they are, what they say of themselves, and what is said in them."""
