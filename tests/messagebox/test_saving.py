"""Saving the bytes of messages, whatever their senders called their files and wherever they are to go."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossdock.administration.deliveries import save
from crossdock.errors import UsageError
from crossdock.messagebox.agent import Agent
from express import a_message, deploy, publish


@pytest.mark.parametrize(
    ("source", "extension"),
    [
        ("a.json", ".json"),
        ("a", ""),
        (f"a.{'x' * 250}", ""),
        ("a." + "é" * 20, ""),
        ("a.b/c", ""),
        ("a.\0b", ""),
        ("a.\n\x1b[2J", ""),
    ],
)
def test_no_name_of_a_source_keeps_a_message_from_being_saved(
    agent: Agent, folder: Path, source: str, extension: str
) -> None:
    deploy(agent)
    odd = a_message(agent, {}, written={"FILE.ReceivedFileName": source})
    plain = a_message(agent, {}, written={"FILE.ReceivedFileName": "b.json"})
    publish(agent, odd, plain)

    saved = save(agent, [str(odd.id), str(plain.id)], folder / "saved")

    assert [Path(each.file).name for each in saved] == [f"{odd.id}{extension}", f"{plain.id}.json"]
    assert {path.read_bytes() for path in (folder / "saved").iterdir()} == {b"content"}


@pytest.mark.parametrize("place", ["file", "file/below", "link", "x" * 300])
def test_folder_that_cannot_be_written_to_is_named(agent: Agent, folder: Path, place: str) -> None:
    (folder / "file").write_text("")
    (folder / "link").symlink_to(folder / "nowhere")
    deploy(agent)
    message = a_message(agent, {})
    publish(agent, message)

    with pytest.raises(UsageError, match=r"cannot be written: .* Save elsewhere with: --to FOLDER"):
        save(agent, [str(message.id)], folder / place)
