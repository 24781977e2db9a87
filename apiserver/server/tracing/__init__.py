"""Tracing: flag, configuration file and spans. The exporter is only imported if tracing is on."""
