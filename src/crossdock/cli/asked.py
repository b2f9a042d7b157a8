"""Whom a command asks: the MessageBox itself, or with `--url` a console that may be on another machine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeAlias

import typer

from crossdock.cli.options import Database, Home, Person, Reason, settings_of

if TYPE_CHECKING:
    from crossdock.administration.service import Administration
    from crossdock.cli.remote import Remote
    from crossdock.client import Client
    from crossdock.settings import Settings

Asked: TypeAlias = "Administration | Remote"
Parameters = ParamSpec("Parameters")

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="CROSSDOCK_URL", help="Ask the console there, instead of the MessageBox itself."),
]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="CROSSDOCK_TOKEN", help="Our API token there; rather in the variable."),
]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the MessageBox is that a command asks, and for whom the command acts."""

    home: Path | None = None
    database: str | None = None
    url: str | None = None
    token: str | None = None
    person: str | None = None
    reason: str | None = None

    def settings(self) -> Settings:
        return settings_of(home=self.home, database=self.database, person=self.person, reason=self.reason)

    @contextmanager
    def asked(self) -> Iterator[Asked]:
        """The MessageBox of these options, or the console at this address."""
        if self.url is None:
            from crossdock.administration.service import opened

            with opened(self.settings()) as service:
                yield service
            return
        from crossdock.cli.remote import Remote

        with self.console(self.url) as client:
            yield Remote(client)

    @contextmanager
    def console(self, url: str) -> Iterator[Client]:
        """A client of the console there. UsageError for options that say where a MessageBox is."""
        from crossdock.administration.parameters import as_options
        from crossdock.client import Client
        from crossdock.errors import UsageError

        if not url.lower().startswith(("http://", "https://")):
            raise UsageError(
                f"--url {url!r} is not the address of a console: write http://HOST:PORT or https://HOST:PORT."
            )

        if self.home is not None or self.database is not None or self.person is not None:
            raise UsageError(
                "--url asks a console, which knows its MessageBox and you: leave --home, --database and --as out."
            )
        if not self.token:
            raise UsageError(
                "--url needs --token TOKEN, or CROSSDOCK_TOKEN. Make one with: crossdock token create NAME"
            )
        with Client(url, self.token, reason=settings_of(reason=self.reason).reason) as client:
            try:
                yield client
            except UsageError as error:
                if type(error) is not UsageError:
                    raise
                raise UsageError(as_options(str(error))) from error


def asking(command: Callable[Concatenate[Place, Parameters], None]) -> Callable[..., None]:
    """The command with the options of a place instead of the place."""
    return _with_options(command, {"home": Home, "database": Database, "url": Url, "token": Token})


def acting(command: Callable[Concatenate[Place, Parameters], None]) -> Callable[..., None]:
    """The same for a command that changes something: it has --as and --reason too, for the audit."""
    where: dict[str, Any] = {"home": Home, "database": Database, "url": Url, "token": Token}
    return _with_options(command, {**where, "person": Person, "reason": Reason})


def _with_options(command: Callable[..., None], options: dict[str, Any]) -> Callable[..., None]:
    def run(**given: Any) -> None:
        # `get` has a --person of its own: only what is an option of the place here is taken out.
        place = Place(**{name: given.pop(name) for name in options})
        command(place, **given)

    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    kind = inspect.Parameter.KEYWORD_ONLY
    ours = [inspect.Parameter(name, kind, default=None, annotation=option) for name, option in options.items()]
    before = next((number for number, each in enumerate(own) if each.name == "output"), len(own))
    parameters = [*own[:before], *ours, *own[before:]]
    run.__signature__ = inspect.Signature([each.replace(kind=kind) for each in parameters])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run
