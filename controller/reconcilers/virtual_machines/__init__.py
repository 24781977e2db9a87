"""Virtual machines: the loop that keeps a pod for each that should be on, and what it is decided by.

``virtual_machine_plan`` has the rules, in order, and is to be read first, with ``observed``, all that it is given. ``reconciler`` is the
loop around it, and ``gathering`` fills ``observed``. The other modules are parts of the decision, each for itself: starts (``attempts``,
``endings``), pods that the cluster ends or says nothing of
(``disruptions``, ``silent_nodes``, ``absences``), and what the status says of migrations, upgrades and the rest (``migration_record``,
``outdated``, ``statuses``); ``validation`` keeps machines away that cannot be understood. Whether a machine should be on is not decided
here: :mod:`apiserver.apis.virt.lifecycle.power`.
"""
