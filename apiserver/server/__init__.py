"""The process: options, certificates, serving, health, shutdown."""
