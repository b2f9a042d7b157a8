"""Who may do what: whoever asks, rights of database users, and API tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from crossdock.administration.operating import Me
from crossdock.administration.service import GivenRight
from crossdock.administration.tokens import CreatedToken, TokenRow
from crossdock.api.answers import AnsweredOnce
from crossdock.api.gate import Service, SignedIn

routes = APIRouter(tags=["access"], route_class=AnsweredOnce)


class GivingRight(BaseModel):
    """A right for a user of the PostgreSQL server."""

    database_user: str = Field(min_length=1, max_length=63)
    access: Literal["viewer", "operator", "bodies", "edit", "administrator"]
    application: str | None = None


class CreatingToken(BaseModel):
    """A token for a role and grants, for all applications or for one. `expires` is as `90d`; without it never."""

    name: str = Field(min_length=1, max_length=100)
    role: Literal["viewer", "operator", "administrator"]
    grants: Sequence[Literal["bodies", "edit"]] = ()
    application: str | None = None
    expires: str | None = None


@routes.get("/me", operation_id="me")
def me(person: SignedIn) -> Me:
    """Who has signed in, and what that person may do."""
    given = sorted(right if place is None else f"{right}:{place}" for right, place in person.rights.given)
    return Me(person.name, person.via, person.rights.is_owner, given)


@routes.get("/access", operation_id="access")
def access(service: Service) -> Sequence[GivenRight]:
    """Which database users were given which rights."""
    return service.access()


@routes.post("/access:grant", operation_id="grant", status_code=204)
def grant(service: Service, given: GivingRight) -> Response:
    """Give a database user a right. Takes an administrator."""
    service.grant(given.access, given.database_user, given.application)
    return Response(status_code=204)


@routes.post("/access:revoke", operation_id="revoke", status_code=204)
def revoke(service: Service, given: GivingRight) -> Response:
    """Take a right from a database user. Takes an administrator."""
    service.revoke(given.access, given.database_user, given.application)
    return Response(status_code=204)


@routes.get("/tokens", operation_id="tokens")
def tokens(service: Service) -> Sequence[TokenRow]:
    """API tokens, without the tokens themselves. Takes an administrator."""
    return service.tokens.list()


@routes.post("/tokens", operation_id="create_token", status_code=201)
def create_token(service: Service, creating: CreatingToken) -> CreatedToken:
    """Make an API token. It is shown this once. Takes an administrator."""
    return service.tokens.create(creating.name, creating.role, creating.grants, creating.application, creating.expires)


@routes.delete("/tokens/{name:path}", operation_id="revoke_token", status_code=204)
def revoke_token(service: Service, name: str) -> Response:
    """From here on the token names nobody. Takes an administrator."""
    service.tokens.revoke(name)
    return Response(status_code=204)
