"""Persistence of API objects: keys, bytes, revisions, watches. The disks of guests are volumes, not storage."""
