"""The command that serves the console and its API, and how `run` starts it beside itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated

import typer

from crossdock.cli.logs import LogFormat, LogFormatOption, LogLevel, LogLevelOption, Logs, logging_to
from crossdock.cli.options import Database, Home, Person, settings_of, stop_on_signals

if TYPE_CHECKING:
    from crossdock.api.options import OidcOptions

DEFAULT = "127.0.0.1:8400"
_LIVED_SECONDS, _AGAIN_SECONDS = 10.0, 1.0
Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")]


def console(
    listen: Listen = DEFAULT,
    name: Annotated[
        list[str] | None, typer.Option(help="A host name by which browsers reach it, as behind a proxy.")
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Let people sign in with API tokens, also where it is not loopback.")
    ] = False,
    passwords: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Users, as `crossdock token password` prints lines.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None, typer.Option(metavar="ADDRESS", help="A proxy that names people in --user-header.")
    ] = None,
    user_header: Annotated[str, typer.Option(metavar="NAME", help="As X-Forwarded-User.")] = "",
    role: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=RIGHTS", help="What people whom a proxy or OIDC names may do, as '*=viewer'."),
    ] = None,
    oidc_issuer: Annotated[
        str, typer.Option(metavar="URL", envvar="CROSSDOCK_OIDC_ISSUER", help="An OpenID Connect provider.")
    ] = "",
    oidc_client: Annotated[
        str, typer.Option(metavar="ID", envvar="CROSSDOCK_OIDC_CLIENT", help="Our client id there.")
    ] = "",
    oidc_secret: Annotated[
        str, typer.Option(metavar="SECRET", envvar="CROSSDOCK_OIDC_SECRET", help="Our secret; rather in the variable.")
    ] = "",
    oidc_claim: Annotated[str, typer.Option(metavar="CLAIM", help="The claim that names a person.")] = "email",
    https: Annotated[
        bool, typer.Option("--https", help="Browsers reach it by https: a proxy ends the encryption.")
    ] = False,
    beside: Annotated[bool, typer.Option("--beside", hidden=True)] = False,
    home: Home = None,
    database: Database = None,
    person: Person = None,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Serve the web console and its API until Ctrl-C, and print the address to open.

    At 127.0.0.1 the address has a token that signs in once. At any other address people have to sign in: with API
    tokens, passwords, by a proxy or by OpenID Connect.
    """
    from crossdock.api.options import AccessOptions, read_address
    from crossdock.api.serve import serve
    from crossdock.cli.output import console as terminal
    from crossdock.console.pages import install

    host, port = read_address(listen)
    access = AccessOptions(
        host,
        port,
        tuple(name or ()),
        tokens=tokens,
        passwords=passwords,
        proxies=tuple(trusted_proxy or ()),
        user_header=user_header,
        roles=_roles(role or []),
        oidc=_oidc(oidc_issuer, oidc_client, oidc_secret, oidc_claim),
        https=https,
    )
    settings = settings_of(home=home, database=database, person=person)
    stop = stop_on_signals()
    if beside:
        _stop_with_parent(stop)
    with logging_to(terminal(stderr=True), Logs(log_level, log_format)):
        serve(settings, access, install=install, announce=_announce, stop=stop)


def _announce(address: str) -> None:
    sys.stdout.write(f"Console: {address}\n")
    sys.stdout.flush()


def _roles(given: list[str]) -> dict[str, str]:
    from crossdock.errors import UsageError

    roles = {}
    for each in given:
        name, equals, rights = each.rpartition("=")
        if not equals or not name:
            raise UsageError(f"--role {each!r}: write NAME=RIGHTS, as ann=operator or '*=viewer'.")
        roles[name] = rights
    return roles


def _oidc(issuer: str, client: str, secret: str, claim: str) -> OidcOptions | None:
    from crossdock.api.options import OidcOptions
    from crossdock.errors import UsageError

    if not issuer and not client:
        return None
    if not issuer or not client:
        raise UsageError("OpenID Connect takes both --oidc-issuer URL and --oidc-client ID.")
    return OidcOptions(issuer, client, secret, claim)


def _stop_with_parent(stop: Event) -> None:
    """Whoever started us holds the other end of our standard input, until it ends in whatever way."""

    def watch() -> None:
        sys.stdin.buffer.read()
        stop.set()

    Thread(target=watch, name="parent", daemon=True).start()


@contextmanager
def console_beside(listen: str, home: Path | None, database: str | None) -> Iterator[None]:
    """A console in a process of its own until the end of the block. Its line is on standard error.

    The address of the database goes by the environment: others could read it among the arguments.
    """
    options = [] if home is None else ["--home", str(home)]
    command = [sys.executable, "-m", "crossdock", "console", "--beside", "--listen", listen, *options]
    beside = _Beside(command, os.environ if database is None else {**os.environ, "CROSSDOCK_DATABASE": database})
    beside.start()
    try:
        yield
    finally:
        beside.end()


class _Beside(Thread):
    """Starts the process again where something ended it; not where it ended by itself, as when the port is taken."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        super().__init__(name="console beside", daemon=True)
        self._command = command
        self._environment = environment
        self._over = Event()
        # Whose end is closed ends the process, however this one ends.
        self._read, self._write = os.pipe()

    def run(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            ended = subprocess.run(
                self._command, stdin=self._read, stdout=sys.stderr, env=self._environment, check=False
            ).returncode
            if ended >= 0 and (ended == 0 or time.monotonic() - began < _LIVED_SECONDS):
                return
            self._over.wait(_AGAIN_SECONDS)

    def end(self) -> None:
        self._over.set()
        os.close(self._write)
        self.join()
        os.close(self._read)
