"""Roles: groups of permissions, made once by a migration; afterwards operators own them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

# app label → code names; "view_*" is every permission to look at rows of that application.
Role = Mapping[str, Sequence[str]]

OPERATOR: Final[Role] = {
    "sessions_app": ("view_*", "undo_summary", "change_modelendpoint"),
    "compression_app": (
        "view_*",
        "trigger_compaction",
        "cancel_compaction",
        "clear_cooldown",
        "pause_compaction",
    ),
    "processes_app": (
        "view_*",
        "kill_process",
        "redeliver_completion",
        "show_completion",
        "discard_completion",
        "revoke_approval",
    ),
    "dashboard": (
        "view_*",
        "export_timeline",
        "silence_alert",
        "unlock_login",
        "delete_heartbeat",
    ),
    "auth": ("view_user",),
}
AUDITOR: Final[Role] = {
    "sessions_app": ("view_*",),
    "compression_app": ("view_*",),
    "processes_app": ("view_*",),
    "dashboard": ("view_*",),
    "auth": ("view_*",),
    "admin": ("view_logentry",),
}
SUPPORT: Final[Role] = {
    "sessions_app": (
        "view_chat",
        "view_session",
        "view_turn",
        "view_message",
        "view_summary",
        "view_rewind",
        "read_transcript",
    ),
    "processes_app": (
        "view_processrecord",
        "view_completionevent",
        "view_approval",
        "read_log",
    ),
    "dashboard": ("view_timeline",),
}
ROLES: Final[Mapping[str, Role]] = {
    "Operator": OPERATOR,
    "Auditor": AUDITOR,
    "Support": SUPPORT,
}


def grant(apps: Any, roles: Mapping[str, Role] = ROLES, *, only: Sequence[str] = ()) -> None:
    """Make the groups and add the permissions that are named; nothing is ever taken away.

    ``apps`` is the registry of a migration, or Django's own; ``only`` limits it to applications.
    """
    group, permission = (apps.get_model("auth", name) for name in ("Group", "Permission"))
    for name, role in roles.items():
        made, _ = group.objects.get_or_create(name=name)
        for label, codes in role.items():
            if only and label not in only:
                continue
            rows = permission.objects.filter(content_type__app_label=label)
            wanted = [
                row
                for row in rows
                if row.codename in codes or ("view_*" in codes and row.codename.startswith("view_"))
            ]
            made.permissions.add(*wanted)
