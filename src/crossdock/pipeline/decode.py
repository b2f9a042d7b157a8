"""Decoding: compressed bytes made plain, and text in any character set made UTF-8."""

from __future__ import annotations

import codecs
import zlib

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
    plain: list[bytes] = []
    size = 0
    while content.startswith(_GZIP):
        stream = zlib.decompressobj(wbits=31)
        try:
            plain.append(stream.decompress(content, limit - size + 1))
        except zlib.error as error:
            raise DocumentError(f"the file is not gzip all through: {error}") from error
        size += len(plain[-1])
        if size > limit:
            raise DocumentError(f"the file has more than {limit:,} bytes when it is unpacked")
        if not stream.eof:
            raise DocumentError("the compressed file ends too early")
        content = stream.unused_data
    if content.strip(b"\0"):
        raise DocumentError("the compressed file is followed by something else")
    return b"".join(plain)


def to_utf8(content: bytes, charset: str | None = None) -> bytes:
    """Text as UTF-8: from the character set that is given, or from the one that its byte order mark shows."""
    for mark, name in _MARKS:
        if charset is None and content.startswith(mark):
            return _transcoded(content.removeprefix(mark), name)
    return content if charset is None else _transcoded(content, charset)


def _transcoded(content: bytes, charset: str) -> bytes:
    try:
        return content.decode(charset).encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise DocumentError(f"the file is not {charset}: {error.reason} at byte {error.start + 1}") from error
