"""Tracing of a process: its flag and file, and the spans. Only who asks for spans loads what sends them."""
