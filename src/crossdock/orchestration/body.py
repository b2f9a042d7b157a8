"""The body of a new message: bytes and text as they are, anything else as JSON with exact numbers."""

from __future__ import annotations

from crossdock.message.document import write_json


def encode_body(body: object) -> bytes:
    """Raises DocumentError for what JSON cannot hold."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    return body.encode() if isinstance(body, str) else write_json(body)
