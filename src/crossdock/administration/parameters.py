"""How a sentence of ours names what was asked with: on the command line by options, in the API by parameters.

The API answers with the parameters. The command line that asks a console says the options again.
"""

from __future__ import annotations

_OPTIONS = {  # of sentences whose option begins them, the option; of others, the words around it
    "--where: ": "where: ",
    "--since '": "since '",
    "--until '": "until '",
    "add: --personal": "add: personal=true",
    "choose them with --port, --code, --type, --where, --since or --all.": (
        "choose them with port, code, type, where, since or everything."
    ),
}


def as_parameters(sentence: str) -> str:
    """As the API says it."""
    return _said(sentence, _OPTIONS)


def as_options(sentence: str) -> str:
    """As the command line says what the API has said."""
    return _said(sentence, {parameters: options for options, parameters in _OPTIONS.items()})


def _said(sentence: str, words: dict[str, str]) -> str:
    """With a value in it that is whatever somebody wrote: only its beginning and its end are looked at."""
    for before, after in words.items():
        if before.endswith((": ", "'")) and sentence.startswith(before):
            return after + sentence.removeprefix(before)
        if sentence.endswith(before):
            return sentence.removesuffix(before) + after
    return sentence
