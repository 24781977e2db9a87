"""Admission plug-ins, and the chain of them; they know no kind of ours."""
