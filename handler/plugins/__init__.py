"""Plugins: executables that set up networks and storage of guests on the node. docs/plugins.md specifies them for those who write one.

``contract`` has the words on which both sides agree, ``answers`` judges what a plugin answered, ``faults`` are its verdicts: all of them
pure, as is ``requests``, what all plugins are told of a machine. ``running`` runs an executable, bounded in time and output, ``turns``
shares calls fairly, and ``calling`` ties these together. ``records`` keeps what was added, and ``deleting`` has it taken away. ``serving``
is the other side, for plugins of ours. Nothing here knows networks or disks.

A plugin is the administrator's, and runs as root. It is believed nothing all the same: a bug of one must not be a bug of all guests.
"""
