"""The served version: pydantic types, defaults, validation. Only virt-api imports it."""
