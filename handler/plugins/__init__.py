"""Plugins: executables that set up guests' networks and storage on the node; docs/plugins.md specifies them.

``contract`` has the shared constants, ``answers`` checks a plugin's answer, ``faults`` has the errors, and ``requests`` the common part of
requests; these are pure. ``running`` runs an executable with limits on time and output, ``turns`` shares calls fairly, and ``calling``
combines these. ``records`` keeps what was added, and ``deleting`` deletes it. ``serving`` is the other side, for our own plugins. This
package is independent of networks and disks.

Plugins belong to the administrator and run as root. Their answers are still untrusted, so that a plugin's bug does not affect all guests.
"""
