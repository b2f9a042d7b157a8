"""The adapters that come with Crossdock keep what `testing/receive_conformance.py` says about every receive adapter."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL, create_engine, text

from crossdock.adapter.contract import ReceiveAdapter
from crossdock.adapter.file.adapter import FileReceiveAdapter
from crossdock.adapter.sql.receive import SqlReceiveAdapter
from crossdock.testing.receive_conformance import ReceiveAdapterConformance


class TestFile(ReceiveAdapterConformance):
    subfolders = False
    below = ""
    archive: Path | None = None

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.inbound = tmp_path / "in"
        (self.inbound / self.below).mkdir(parents=True)
        self.seconds = count(int(time.time()) - 3600)

    def make_adapter(self) -> ReceiveAdapter:
        return self._adapter(self.inbound)

    def make_unreachable_adapter(self) -> ReceiveAdapter:
        return self._adapter(self.tmp_path / "away")

    def put(self, name: str, text: str) -> bytes:
        assert not self._path(name).exists()
        return self.replace(name, text)

    def replace(self, name: str, text: str) -> bytes:
        written = self.tmp_path / "written"
        written.write_text(text, "utf-8")
        second = next(self.seconds)
        os.utime(written, (second, second))
        written.replace(self._path(name))
        return text.encode()

    def remove(self, name: str) -> None:
        self._path(name).unlink()

    def _path(self, name: str) -> Path:
        return self.inbound / self.below / f"{name}.txt"

    def _adapter(self, folder: Path) -> FileReceiveAdapter:
        archive = None if self.archive is None else str(self.archive)
        return FileReceiveAdapter(str(folder / "*.txt"), subfolders=self.subfolders, archive=archive)


class TestFileBelow(TestFile):
    subfolders = True
    below = "deep/er"


class TestFileWithArchive(TestFile):
    @pytest.fixture(autouse=True)
    def _archive(self, tmp_path: Path) -> None:
        self.archive = tmp_path / "archive"


class TestFileBelowWithArchiveInside(TestFileBelow):
    @pytest.fixture(autouse=True)
    def _archive(self, tmp_path: Path) -> None:
        self.archive = tmp_path / "in" / "done"


class TestFileWithArchiveOnAnotherFileSystem(TestFile):
    @pytest.fixture(autouse=True)
    def _archive(self, tmp_path: Path) -> Iterator[None]:
        memory = Path("/dev/shm")
        if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is only one file system here")
        with tempfile.TemporaryDirectory(dir=memory) as folder:
            self.archive = Path(folder)
            yield


class TestSqlite(ReceiveAdapterConformance):
    done = "DELETE FROM item WHERE name = :key"
    version: str | None = None

    @pytest.fixture
    def database_url(self, tmp_path: Path) -> URL:
        path = tmp_path / "items.db"
        path.touch()
        return URL.create("sqlite", database=str(path))

    @pytest.fixture(autouse=True)
    def _database(self, database_url: URL) -> Iterator[None]:
        self.url = url = database_url
        self.revisions = count(1)
        driver = url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url
        self.engine = create_engine(driver)
        self._run("CREATE TABLE item (name varchar(9) PRIMARY KEY, content text, revision integer, sent integer)")
        yield
        self.engine.dispose()

    def make_adapter(self) -> ReceiveAdapter:
        return self._adapter(self.url)

    def make_unreachable_adapter(self) -> ReceiveAdapter:
        return self._adapter(self.url.set(database=f"{self.url.database}_away"))

    def put(self, name: str, text: str) -> bytes:
        self._run("DELETE FROM item WHERE name = :name AND sent = 1", name=name)
        revision = next(self.revisions)
        self._run("INSERT INTO item VALUES (:name, :content, :revision, 0)", name=name, content=text, revision=revision)
        return self._document(name, text, revision)

    def replace(self, name: str, text: str) -> bytes:
        revision = next(self.revisions)
        change = "UPDATE item SET content = :content, revision = :revision WHERE name = :name"
        self._run(change, name=name, content=text, revision=revision)
        return self._document(name, text, revision)

    def remove(self, name: str) -> None:
        self._run("DELETE FROM item WHERE name = :name", name=name)

    def _document(self, name: str, content: str, revision: int) -> bytes:
        document = {"name": name, "content": content, "revision": revision}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    def _adapter(self, url: URL) -> SqlReceiveAdapter:
        return SqlReceiveAdapter(
            url.render_as_string(hide_password=False),
            query="SELECT name, content, revision FROM item WHERE sent = 0",
            key="name",
            done=self.done,
            version=self.version,
        )

    def _run(self, statement: str, **values: object) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(statement), values)


class TestSqliteWithVersion(TestSqlite):
    done = "UPDATE item SET sent = 1 WHERE name = :key"
    version = "revision"


class TestPostgresql(TestSqlite):
    @pytest.fixture
    def database_url(self, empty_database: str) -> URL:
        place = {name: str(value) for name, value in conninfo_to_dict(empty_database).items()}
        return URL.create("postgresql", database=place.pop("dbname"), query=place)


class TestPostgresqlWithVersion(TestPostgresql):
    done = "UPDATE item SET sent = 1 WHERE name = :key"
    version = "revision"
