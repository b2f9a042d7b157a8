"""Where the console listens, and the ways by which people may sign in."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crossdock.api.sessions import COOKIE
from crossdock.errors import UsageError

DEFAULT_PORT = 8400
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class OidcOptions:
    """An OpenID Connect provider. `claim` names the person. `back` is the address of the console as the provider knows
    it, if that is not how browsers ask for it.
    """

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    claim: str = "email"
    back: str = ""


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """How people reach the console and sign in.

    `one_time_token` signs in once, as whoever runs the process. `tokens`: API tokens sign in, as they always do on
    loopback. `passwords` is a file of users. `proxies` are the addresses whose header `user_header` names the person.
    `roles` are the rights of people whom a proxy or a provider names, as `operator` or `viewer,bodies:Shop`; `*` is
    everybody else. `names` are the host names by which browsers reach the console, besides the address itself.
    `https`: they reach it so, since a proxy ends the encryption.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    names: tuple[str, ...] = ()
    one_time_token: str | None = field(default=None, repr=False)
    tokens: bool = False
    passwords: Path | None = None
    proxies: tuple[str, ...] = ()
    user_header: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    oidc: OidcOptions | None = None
    https: bool = False

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def takes_tokens(self) -> bool:
        return self.tokens or self.is_loopback

    @property
    def hosts(self) -> frozenset[str]:
        """What a Host header may say, without the port. Elsewhere a page of somebody else may be asking."""
        own = _LOOPBACK_NAMES if self.is_loopback else (self.host,)
        return frozenset(name.lower().strip("[]") for name in (*own, *self.names))

    @property
    def cookie(self) -> str:
        """The name of the cookie of a session."""
        return f"{COOKIE}_{self.port}"

    def check(self) -> None:
        """UsageError if people who should not could sign in, or nobody could."""
        if self.user_header and not self.proxies:
            raise UsageError("--user-header is for listed proxies: name each with --trusted-proxy ADDRESS.")
        if self.proxies and not self.user_header:
            raise UsageError("--trusted-proxy needs --user-header NAME: the header with the name of the person.")
        for proxy in self.proxies:
            try:
                ipaddress.ip_address(proxy)
            except ValueError as error:
                raise UsageError(f"--trusted-proxy {proxy!r} is not an address, as 127.0.0.1 or ::1.") from error
        if (self.proxies or self.oidc) and not self.roles:
            raise UsageError("Say what people may do, with --role NAME=viewer for one, or --role '*=viewer' for all.")
        configured = self.tokens or self.passwords or self.proxies or self.oidc
        if not self.is_loopback and not configured:
            raise UsageError(
                f"The console listens at {self.host} only if people have to sign in: give --tokens, --passwords FILE, "
                "--trusted-proxy ADDRESS or --oidc-issuer URL. Without these it listens at 127.0.0.1."
            )
        if not self.is_loopback and self.host in ("0.0.0.0", "::", "") and not self.names:  # noqa: S104 - refused here
            raise UsageError(
                f"The console at {self.host!r} needs --name HOST: the name by which browsers reach it, as "
                "crossdock.example.com. Requests for other names are refused."
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_address(listen: str) -> tuple[str, int]:
    """HOST:PORT, :PORT, or a HOST of loopback only. Raises UsageError."""
    host, _, port = listen.rpartition(":") if ":" in listen and not listen.endswith("]") else (listen, "", "")
    port = port or (str(DEFAULT_PORT) if is_loopback(host) else "")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen {listen!r} is not an address: write HOST:PORT, as 127.0.0.1:8400.")
    return host.strip("[]") or "127.0.0.1", int(port)
