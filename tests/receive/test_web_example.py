"""The example of requests over http, in both of its forms, with a partner that answers."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import yaml

from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.messagebox.deployment import Deployment
from express import unbalanced
from office import Office, free_port, written
from partner import Request, partner
from walk import EXAMPLES, until


def deployed(path: Path) -> Deployment:
    return deployment_of(load_application(path), path, text_limit=256)


def test_yaml_and_python_deploy_identically() -> None:
    from_yaml, from_python = deployed(EXAMPLES / "web.yaml"), deployed(EXAMPLES / "web.py")

    assert from_yaml == from_python
    assert from_yaml.digest == from_python.digest


def receipt(request: Request) -> tuple[int, bytes]:
    return 200, json.dumps({"receipt": f"{request.method} {request.path}"}).encode()


def test_client_gets_the_receipt_and_every_receipt_is_kept(database: str, tmp_path: Path) -> None:
    with partner() as shop:
        shop.respond, shop.headers = receipt, {"Content-Type": "application/json"}
        at = f"http://127.0.0.1:{free_port()}"
        text = (EXAMPLES / "web.yaml").read_text()
        text = text.replace("http://127.0.0.1:8080", at).replace("http://127.0.0.1:9090", shop.address)
        with Office(database, tmp_path, yaml.safe_load(text)).open() as office:
            asked = httpx.post(f"{at}/ask", content=b'{"id": "A1"}', timeout=60)
            told = httpx.post(f"{at}/tell", content=b'{"id": "A2"}', timeout=60)
            until(lambda: len(written(tmp_path / "out" / "receipts")) == 2)
            office.settled()

    assert (asked.status_code, asked.json()) == (200, {"receipt": "PUT /orders/A1"})
    assert asked.headers["content-type"] == "application/json"
    assert (told.status_code, len(told.json()["messages"])) == (202, 1)
    kept = {json.loads(each)["receipt"] for each in written(tmp_path / "out" / "receipts").values()}
    assert kept == {"PUT /orders/A1", "PUT /orders/A2"}
    assert unbalanced(database) == []
