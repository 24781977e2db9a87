"""The API as data, shared by all processes. It imports no other package of ours."""
