"""Encoding: text written in another character set, and bytes compressed. The same message gives the same bytes."""

from __future__ import annotations

import gzip

from crossdock.errors import DocumentError


def compress(content: bytes) -> bytes:
    """As gzip, without the time of day in it."""
    return gzip.compress(content, mtime=0)


def from_utf8(content: bytes, *, charset: str) -> bytes:
    """Text that was UTF-8, without the byte order mark it may have had. Raises DocumentError."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DocumentError(f"the body is not UTF-8: byte {error.start + 1} is 0x{byte:02x}") from error
    try:
        return text.encode(charset)
    except UnicodeEncodeError as error:
        character = text[error.start]
        raise DocumentError(
            f"character {error.start + 1} of the body is {character!r}, which {charset} does not have"
        ) from error
    except UnicodeError as error:
        raise DocumentError(f"the body cannot be written as {charset}: {error}") from error
