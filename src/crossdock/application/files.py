"""Files that an application names (XSD, XSLT, JSON Schema) and what they include, as text that goes with a pipeline."""

from __future__ import annotations

import re
from pathlib import Path

from lxml import etree

from crossdock.errors import ApplicationError, UsageError
from crossdock.whole_file import DECLARED_LIMIT_BYTES, read_whole

# What a schema or a stylesheet names to include other files, and where.
_INCLUDING = ("{*}include", "{*}import", "{*}redefine", "{*}override")
_PLACES = ("schemaLocation", "href")
_REFERRED = re.compile(r'"\$ref"\s*:\s*"([^"#]+)')
_FILES_AT_MOST = 200


def files_of(folder: Path, name: str, format_: str) -> dict[str, str]:
    """A file and those that it includes, by their names relative to its folder. Raises ApplicationError."""
    main = folder / name
    found: dict[str, str] = {}
    waiting = [Path(main.name)]
    while waiting:
        path = waiting.pop(0)
        key = path.as_posix()
        if key in found:
            continue
        found[key], named = (_json if format_ == "json" else _xml)(main.parent / path)
        waiting += [_included(path, other) for other in named if ":" not in other]
        if len(found) > _FILES_AT_MOST:
            raise ApplicationError(f"{name} includes more than {_FILES_AT_MOST} files")
    return found


def _json(path: Path) -> tuple[str, list[str]]:
    try:
        text = _read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ApplicationError(f"{path} cannot be read: it is not UTF-8") from error
    return text, _REFERRED.findall(text)


def _xml(path: Path) -> tuple[str, list[str]]:
    """In whatever encoding it declares; many are UTF-16. What is no XML is told by whoever uses it."""
    content = _read(path)
    try:
        root = etree.fromstring(content, etree.XMLParser(no_network=True, resolve_entities=False, load_dtd=False))
    except etree.XMLSyntaxError:
        return content.decode("utf-8", "replace"), []
    named = []
    for element in root.iter(*_INCLUDING):
        for attribute in _PLACES:
            if (place := element.get(attribute)) is not None:
                element.set(attribute, place.replace("\\", "/"))  # as Windows writes it
                named.append(element.get(attribute))
    return etree.tostring(root.getroottree(), encoding="unicode"), named


def _included(path: Path, other: str) -> Path:
    """A file that another one names: below the folder of the first, where everything that travels with it is."""
    included = _normal(path.parent / other)
    if included.is_absolute() or included.parts[:1] == ("..",):
        raise ApplicationError(f"{path} includes {other}, which is not in its folder or below")
    return included


def _normal(path: Path) -> Path:
    """Without `a/../`, as an XSD may well write it."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return Path(*parts)


def _read(path: Path) -> bytes:
    try:
        return read_whole(path, DECLARED_LIMIT_BYTES)
    except UsageError as error:
        raise ApplicationError(str(error)) from error
