"""Send ports that could be made and would go wrong later are refused when the application is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossdock.application.deploy import deployment_of
from crossdock.application.model import ApplicationModel
from crossdock.errors import ApplicationError

SHOP = "postgresql://db.example/shop"
STATEMENT = {"statement": "INSERT INTO orders VALUES (:Body)"}


def deploy(port: dict[str, Any]) -> None:
    application = {
        "application": "shop",
        "properties": {"OrderId": "text"},
        "schemas": [{"type": "Order", "format": "json", "distinguished": {"Buyer": "$.buyer"}}],
        "send_ports": [{"name": "Out", **port}],
    }
    deployment_of(ApplicationModel.model_validate(application), Path("/app/shop.yaml"), text_limit=256)


def file(address: str) -> dict[str, Any]:
    return {"adapter": "file", "address": address}


def http(address: str, **options: Any) -> dict[str, Any]:
    return {"adapter": "http", "address": address, "options": options}


@pytest.mark.parametrize(
    ("port", "macro"),
    [
        (file("out/%OrderID%"), "its address has the macro %OrderID%"),
        (file("out/%messageid%"), "its address has the macro %messageid%"),
        (file("out/%MessageID%/%Nothing.Here%"), "its address has the macro %Nothing.Here%"),
        (http("http://h/%datetime%"), "its address has the macro %datetime%"),
        (http("http://h/?a=%Nothing%"), "its address has the macro %Nothing%"),
        (http("http://h/", headers={"X-A": "%Nothing%"}), "the header 'X-A' has the macro %Nothing%"),
        (
            {"dynamic": True, "allow": ["http://h"], "options": {"http": {"headers": {"X-A": "%Nothing%"}}}},
            "the header 'X-A' has the macro %Nothing%",
        ),
    ],
)
def test_macro_that_nothing_fills_is_refused_with_those_that_there_are(port: dict[str, Any], macro: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        deploy(port)

    assert f"send port 'Out': {macro}, and there is no such property" in str(caught.value)
    assert "%MessageID%" in str(caught.value)
    assert "(Buyer, OrderId)" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "port",
    [
        file("out/%SourceFileName%-%datetime%-%MessageID%-%OrderId%-%Buyer%-%BTS.MessageType%-%ReceivePortName%"),
        file("out/100%-sure% 50%"),
        http("http://h/K%C3%A4se/%HTTP.User%?a=%RequestMessageID%"),
        {"adapter": "sql", "address": "postgresql://u:a%ab%cd@h/d", "options": {"statement": "SELECT 1"}},
    ],
)
def test_macros_of_properties_that_there_are_and_what_is_none_are_fine(port: dict[str, Any]) -> None:
    deploy(port)


def sql(**more: Any) -> dict[str, Any]:
    return {"adapter": "sql", "address": SHOP, "options": STATEMENT, **more}


@pytest.mark.parametrize(
    "port",
    [
        sql(retry={"count": 30, "interval": "P1D"}),
        sql(retry={"count": 1, "interval": "P30D"}),
        sql(retry={"count": 60, "interval": "PT1M"}, service_window={"from": "09:00", "to": "18:00"}),
        {
            "dynamic": True,
            "allow": [{"address": SHOP, "options": STATEMENT}],
            "retry": {"count": 31, "interval": "P1D"},
        },
    ],
)
def test_retry_that_may_come_after_the_record_of_deliveries_has_expired_is_refused(port: dict[str, Any]) -> None:
    with pytest.raises(ApplicationError, match="what was delivered is known for 30 days only"):
        deploy(port)


@pytest.mark.parametrize(
    "port",
    [
        sql(retry={"count": 29, "interval": "P1D"}),
        sql(retry={"count": 40, "interval": "PT1M"}, service_window={"from": "09:00", "to": "18:00"}),
        sql(address="sqlite:////shop.db", retry={"count": 10_000, "interval": "P1D"}),
        {**file("out/%MessageID%"), "retry": {"count": 10_000, "interval": "P1D"}},
    ],
)
def test_retries_within_the_record_and_where_there_is_none_are_fine(port: dict[str, Any]) -> None:
    deploy(port)
