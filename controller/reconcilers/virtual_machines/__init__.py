"""Virtual machines: the loop that keeps a pod for each machine that should be on, and its plan.

Read ``virtual_machine_plan`` first: it has the rules, in order. ``reconciler`` is the loop around the plan, and ``gathering`` fills
``observed``, its input. The other modules are parts of the decision:

- an attempt's steps: ``start_rules``, ``attempt_start``, ``pod_obstacles``, ``assignment``, ``attempt_end``, and ``rest`` between two;
- what the status keeps of attempts: ``attempts``, ``endings``;
- pods that the cluster ends or does not report: ``disruptions``, ``unreachable_nodes``;
- the rest of the status: ``migration_record``, ``outdated``, ``restart_required``, ``statuses``.

:mod:`apiserver.apis.virt.lifecycle.power` decides whether a machine should be on.
"""
