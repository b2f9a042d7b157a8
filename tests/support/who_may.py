"""Which role may ask for which operation of the API: the one table that tests compare the console with."""

from __future__ import annotations

ROLES: dict[str, tuple[str, ...]] = {
    "viewer": ("viewer",),
    "bodies": ("viewer", "bodies"),
    "edit": ("viewer", "edit"),
    "operator": ("operator",),
    "administrator": ("administrator",),
}
EVERYBODY = set(ROLES)
OPERATORS, READERS, EDITORS, ADMINISTRATORS = (
    {"operator", "administrator"},
    {"bodies", "edit", "administrator"},
    {"edit", "administrator"},
    {"administrator"},
)
# Who may do what. A route that is not here fails the test.
ALLOWED = {
    **dict.fromkeys(("applications", "ports", "groups", "locations", "orchestrations", "subscriptions", "hosts"), EVERYBODY),
    **dict.fromkeys(("waiting", "instances", "instance", "audit", "sample", "minutes", "me", "access", "live"), EVERYBODY),
    **dict.fromkeys(("messages", "message", "explain", "trace", "suspended", "suspended_groups"), EVERYBODY),
    **dict.fromkeys(("operations", "operation", "try_filter", "views", "save_view", "delete_view"), EVERYBODY),
    **dict.fromkeys(("start", "stop", "enlist", "unenlist", "enable", "disable", "change_application"), OPERATORS),
    **dict.fromkeys(("preview", "execute", "cancel_operation", "resume_instance", "cancel_instance"), OPERATORS),
    "part": READERS,
    "edit": EDITORS,
    **dict.fromkeys(("publish", "erase", "plan", "apply", "undeploy", "terminate_instance"), ADMINISTRATORS),
    **dict.fromkeys(("grant", "revoke", "tokens", "create_token", "revoke_token"), ADMINISTRATORS),
}  # fmt: skip
