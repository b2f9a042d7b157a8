"""Requests that nobody thought of, by every role: never a 500, and nothing that the role may not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

import databases
from console_box import seeded
from crossdock.messagebox.agent import Agent
from served import Served, served
from who_may import ALLOWED, ROLES

EXAMPLES = 1 if os.environ.get("CROSSDOCK_FAST") else 50 if os.environ.get("CROSSDOCK_SOAK") else 2
ENDLESS = "live"
Operation = APIOperation[Any, Any, Any, Any]


@pytest.fixture(scope="module")
def console(server: str, template: str) -> Iterator[Served]:
    database = databases.create(server, "crossdock_schemathesis", template)
    try:
        with Agent(database) as agent, served(database) as made:
            seeded(agent)
            yield made
    finally:
        databases.drop(server, "crossdock_schemathesis")


@pytest.fixture(scope="module")
def operations(console: Served) -> list[Operation]:
    with console.client() as client:
        description = client.get("/api/v1/openapi.json").json()
    schema = schemathesis.openapi.from_dict(description)
    schema.config.update(base_url=console.url)
    found = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]
    assert len(found) == len(ALLOWED)
    return [each for each in found if name_of(each) != ENDLESS]


def test_the_description_is_an_openapi_document_of_version_3_1(console: Served) -> None:
    with console.client() as client:
        description = client.get("/api/v1/openapi.json").json()

    assert description["openapi"].startswith("3.1.")
    assert [str(error) for error in OPENAPI_31_VALIDATOR.iter_errors(description)] == []
    broken = description | {"paths": {"/ports": {"get": {"responses": 200}}}}
    assert not OPENAPI_31_VALIDATOR.is_valid(broken)


def name_of(operation: Operation) -> str:
    return str(operation.definition.raw["operationId"])


RUNS = [*((role, GenerationMode.POSITIVE) for role in ROLES), ("administrator", GenerationMode.NEGATIVE)]


@pytest.mark.parametrize(("role", "mode"), RUNS)
def test_no_request_of_a_role_is_a_500_or_gives_what_it_may_not_have(
    console: Served, operations: list[Operation], role: str, mode: GenerationMode
) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.headers["authorization"] = f"Bearer {console.token(f'{role} {mode}', *ROLES[role])}"
        for operation in operations:
            _try(session, operation, mode, allowed=role in ALLOWED[name_of(operation)])


def _try(session: requests.Session, operation: Operation, mode: GenerationMode, *, allowed: bool) -> None:
    strategy = operation.as_strategy(generation_mode=mode)
    quiet = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    @quiet
    @given(case=strategy)
    def tried(case: Case[Any]) -> None:
        case.headers.pop("Authorization", None)
        answer = case.call(session=session)
        said = f"{case.as_curl_command()}\n{answer.status_code} {answer.text[:500]}"
        # 503: nobody has looked at this MessageBox, or it says that the database user may not do this.
        assert answer.status_code < 500 or (answer.status_code == 503 and name_of(operation) == "sample"), said
        assert allowed or answer.status_code >= 400, said

    with suppress(Unsatisfiable):  # of some operations nothing can be wrong
        tried()
