"""Validation: documents against an XSD or a JSON Schema. Whatever the schema includes travels with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import jsonschema_rs
from lxml import etree

from crossdock.errors import ApplicationError, DocumentError, ForeignError
from crossdock.foreign import FOREIGN_CODE
from crossdock.pipeline.unique_items import UniqueItems
from crossdock.pipeline.xml import Xsd

BASE = "crossdock:/"
_KEYWORDS: dict[str, type[Any]] = {"uniqueItems": UniqueItems}
Validator = Callable[[bytes], None]


class Files(etree.Resolver):  # type: ignore[misc]
    """Gives a schema or a stylesheet the files that came with it, and nothing else."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__()
        self._files = files

    def resolve(self, url: str, _: str, context: Any) -> Any:
        text = self._files.get(url.removeprefix(BASE))
        if text is None:
            raise OSError(f"{url} did not come with it")
        return self.resolve_string(text, context, base_url=url)


def parse_with_files(files: Mapping[str, str]) -> Any:
    """The first of the files; it may include the others."""
    name, text = next(iter(files.items()))
    parser = etree.XMLParser(no_network=True, resolve_entities=False, load_dtd=False)
    parser.resolvers.add(Files(files))
    return etree.fromstring(text.encode(), parser, base_url=BASE + name)


def xsd_validator(files: Mapping[str, str]) -> Validator:
    """Raises ApplicationError if the schema is wrong; what it gives raises DocumentError if a document is."""
    return xsd(files).check


def xsd(files: Mapping[str, str]) -> Xsd:
    """The first of the files. Raises ApplicationError if it is wrong."""
    try:
        return Xsd(etree.XMLSchema(parse_with_files(files)))
    except (etree.LxmlError, OSError) as error:
        raise ApplicationError(f"{next(iter(files))} is not an XSD that can be used: {error}") from error


def json_validator(files: Mapping[str, str]) -> Validator:
    """The same for a JSON Schema, of the draft that it says it is."""
    name, text = next(iter(files.items()))

    def retrieve(uri: str) -> Any:
        return json.loads(files[uri.removeprefix(BASE)])

    try:
        with FOREIGN_CODE:  # a library in Rust may panic
            schema = jsonschema_rs.validator_for(text, base_uri=BASE + name, retriever=retrieve, keywords=_KEYWORDS)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, ForeignError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ApplicationError(f"{name} is not a JSON Schema that can be used: {reason}") from error

    def validate(body: bytes) -> None:
        try:
            # Numbers are compared as they are written, not as floats near them.
            with FOREIGN_CODE:
                schema.validate(json.loads(body, parse_float=Decimal))
        except jsonschema_rs.ValidationError as problem:  # the first: all of them take hundreds of times the bytes
            place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem.instance_path)
            raise DocumentError(f"it does not fit its schema: ${place}: {problem.message}") from None
        except (ValueError, ArithmeticError, RecursionError, ForeignError) as error:
            raise DocumentError(f"it cannot be validated: {error}") from error

    return validate
