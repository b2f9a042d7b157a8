"""Every command in the documents is one that there is, with options that it has; every snippet can be read."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
import typer.main
import yaml

from crossdock.cli.app import app
from pages import CURRENT, blocks, name, named, typed

_CHOICE = re.compile(r"(?<=\w)\|(?=\w)")
_OR = "\x1f"
_PLACEHOLDER = re.compile(r"\[[^\]]*\]|\.\.\.|…")


def commands(page: Path) -> Iterator[str]:
    yield from typed(page)
    yield from named(page)


def alternatives(words: list[str]) -> Iterator[list[str]]:
    """`start|stop NAME` is two commands."""
    for place, word in enumerate(words[:2]):
        if "|" in word:
            for one in word.split("|"):
                yield from alternatives([*words[:place], one, *words[place + 1 :]])
            return
    yield words


def words_of(command: str) -> list[str]:
    """The words of the command, without what the shell does with what it prints. ValueError: quotes do not end."""
    kept = _CHOICE.sub(_OR, _PLACEHOLDER.sub("", command.replace("\\|", "|")))
    read = shlex.shlex(kept, posix=True, punctuation_chars="|>&;")
    read.whitespace_split = True
    words = list(takewhile(lambda word: word[0] not in "|>&;", (word or "-" for word in read)))
    return [word.replace(_OR, "|") for word in words][1:]


def wrong(command: str) -> str | None:
    """Why this cannot be typed; None if it can. Values are not looked at: they are names of somebody's own."""
    try:
        words = words_of(command)
    except ValueError:
        return "its quotes do not end"
    for each in alternatives(words):
        if problem := _unknown(each):
            return problem
    return None


def _unknown(words: list[str]) -> str | None:
    command = typer.main.get_command(app)
    rest = list(words)
    while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return f"there is no command {rest[0]!r}"
        command = command.commands[rest.pop(0)]
    given = {word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    unknown = sorted(option for option in given if option.split("|")[0] not in known)
    return f"it has no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_commands_of_a_page_can_be_typed(page: Path) -> None:
    found = {each: problem for each in commands(page) if (problem := wrong(each))}

    assert found == {}


def test_command_that_there_is_not_would_be_found() -> None:
    assert wrong("crossdock get ports --colour red") == "it has no option --colour"
    assert wrong("crossdock start|halt NAME") == "there is no command 'halt'"
    assert wrong("crossdock get suspended --port A -o name | crossdock resume - --all") is None
    assert sum(len(list(commands(page))) for page in CURRENT) > 200


@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_snippets_of_a_page_can_be_read(page: Path) -> None:
    for text in blocks(page, "python"):
        compile(text, name(page), "exec", flags=0x2000)  # with `await` at the top, as in a shell
    for text in blocks(page, "yaml"):
        yaml.safe_load(text)
    for text in blocks(page, "json"):
        json.loads(text)
