"""Decoding: compressed bytes made plain, and text in any character set made UTF-8."""

from __future__ import annotations

import codecs
import gzip
import zlib
from io import BytesIO

from crossdock.errors import DocumentError

LIMIT_BYTES = 256 * 1024 * 1024
_GZIP = b"\x1f\x8b"
# Longest first: the mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def gunzip(content: bytes, *, limit: int = LIMIT_BYTES) -> bytes:
    """What was compressed, also in several members; never more than `limit` bytes, however little there was to read."""
    if not content.startswith(_GZIP):
        raise DocumentError("the file is not compressed with gzip")
    try:
        with gzip.GzipFile(fileobj=BytesIO(content)) as stream:
            plain = stream.read(limit + 1)
    except EOFError as error:
        raise DocumentError("the compressed file ends too early") from error
    except (OSError, zlib.error) as error:
        raise DocumentError(f"the file is not gzip all through: {error}") from error
    if len(plain) > limit:
        raise DocumentError(f"the file has more than {limit:,} bytes when it is unpacked")
    return plain


def to_utf8(content: bytes, charset: str | None = None) -> bytes:
    """Text as UTF-8: from the character set that is given, or from the one that its byte order mark shows."""
    for mark, name in _MARKS:
        if charset is None and content.startswith(mark):
            return _transcoded(content.removeprefix(mark), name)
    return content if charset is None else _transcoded(content, charset)


def _transcoded(content: bytes, charset: str) -> bytes:
    try:
        return content.decode(charset).encode()
    except UnicodeDecodeError as error:
        raise DocumentError(f"the file is not {charset}: {error.reason} at byte {error.start + 1}") from error
    except UnicodeError as error:
        raise DocumentError(f"the file is not {charset}: {error}") from error
