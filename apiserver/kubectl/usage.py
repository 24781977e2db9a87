"""The help of ``kubectl virt``: its commands by purpose, and an example of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Create": ("create",),
    "Change": ("addvolume", "removevolume", "rollout"),
    "Turn on and off": ("start", "stop", "poweroff", "restart", "suspend", "resume"),
    "Act on the running guest": ("pause", "unpause", "reset", "softreboot", "nmi", "sendkey", "freeze", "thaw", "set-password"),
    "Migrate": ("migrate", "cancel-migration"),
    "Connect": ("console", "vnc", "spice", "usbredir", "ssh", "scp", "port-forward"),
    "Inspect": ("guestinfo", "screenshot", "logs", "domainxml", "top", "outdated"),
    "Administer": ("nodes", "fence", "unfence", "move-etcd"),
}
OTHERS: Final = "Other commands"

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "addvolume": ("addvolume web --claim logs --create 10Gi", "addvolume web --claim logs --disk-name data --serial LOGS-0001 --bus scsi"),
    "removevolume": ("removevolume web --claim logs", "removevolume web --disk-name data"),
    "create": ("create web --memory 1Gi --image registry.example/debian:13 --cloud-init user-data.yaml | kubectl apply -f -",),
    "rollout": ("rollout status vmrs/db",),
    "rollout status": ("rollout status vmrs/db", "rollout status vmrs/db --timeout 10m"),
    "rollout history": ("rollout history vmrs/db", "rollout history vmrs/db --revision 2"),
    "rollout undo": ("rollout undo vmrs/db", "rollout undo vmrs/db --to-revision 2"),
    "rollout pause": ("rollout pause vmrs/db",),
    "rollout resume": ("rollout resume vmrs/db",),
    "rollout restart": ("rollout restart vmrs/db",),
    "start": ("start web db --wait", "start web --paused --node node2"),
    "stop": ("stop web", "stop web --grace-period 5", "stop web --force"),
    "poweroff": ("poweroff web --wait",),
    "restart": ("restart web db --wait",),
    "suspend": ("suspend web --wait",),
    "resume": ("resume web --wait",),
    "pause": ("pause web db",),
    "unpause": ("unpause web db",),
    "reset": ("reset web --wait",),
    "softreboot": ("softreboot web",),
    "nmi": ("nmi web",),
    "sendkey": ("sendkey web --keys KEY_LEFTCTRL,KEY_LEFTALT,KEY_DELETE",),
    "freeze": ("freeze web", "freeze web db --unfreeze-timeout 1m"),
    "thaw": ("thaw web",),
    "set-password": ("set-password web -l debian", "set-password web -l debian --encrypted"),
    "migrate": ("migrate web --wait", "migrate web db --node node2"),
    "cancel-migration": ("cancel-migration web --wait",),
    "console": ("console web --wait 2m",),
    "vnc": ("vnc web", "vnc web --proxy-only"),
    "spice": ("spice web", "spice web --proxy-only"),
    "ssh": ("ssh debian@web", "ssh debian@web -i key -- uname -a"),
    "scp": ("scp notes.txt debian@web:", "scp -r debian@web:/var/log logs"),
    "port-forward": ("port-forward web 8080:80", "port-forward web :22 udp/5353:53"),
    "logs": ("logs web --tail 20", "logs web -f"),
    "screenshot": ("screenshot web -o web.png",),
    "usbredir": ("usbredir web --device 1050:0407",),
    "guestinfo": ("guestinfo web -o json",),
    "domainxml": ("domainxml web",),
    "top": ("top --sort-by memory", "top -A -l app=web"),
    "outdated": ("outdated -A",),
    "nodes": ("nodes",),
    "fence": ("fence node2 --off",),
    "unfence": ("unfence node2",),
    "move-etcd": ("move-etcd --to node2 -n kubevirt",),
    "version": ("version", "version --client -o json"),
}


def examples(command: str) -> str:
    """Return the examples of a command's help; empty without one."""
    found = EXAMPLES.get(command, ())
    return "\n".join(["examples:", *(f"  kubectl virt {each}" for each in found)]) if found else ""


def overview(commands: Mapping[str, str]) -> str:
    """Return the list of commands (name: text) by purpose."""
    grouped = {name for group in GROUPS.values() for name in group}
    rest = tuple(name for name in commands if name not in grouped)
    width = max(map(len, commands)) + 2
    parts = []
    for title, names in {**GROUPS, OTHERS: rest}.items():
        if lines := [f"  {name.ljust(width)}{commands[name]}" for name in names if name in commands]:
            parts.append("\n".join([f"{title}:", *lines]))
    return "\n\n".join(parts)
