"""The adapters that come with Crossdock keep what `testing/send_conformance.py` says about every send adapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL, create_engine, text

from crossdock.adapter.contract import SendAdapter
from crossdock.adapter.file.adapter import FileSendAdapter
from crossdock.adapter.registry import send_adapter
from crossdock.testing.send_conformance import SendAdapterConformance
from partner import partner, unused_port


class TestFile(SendAdapterConformance):
    deduplicates = True

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "out"
        (tmp_path / "file").write_bytes(b"other")

    def make_adapter(self) -> SendAdapter:
        return FileSendAdapter(str(self.folder / "%MessageID%.txt"))

    def make_unreachable_adapter(self) -> SendAdapter:
        return FileSendAdapter(str(self.folder.with_name("file") / "a.txt"))

    def make_refusing_adapter(self) -> SendAdapter:
        return FileSendAdapter(str(self.folder.with_name("file")))

    def received(self) -> Sequence[tuple[str | None, bytes]]:
        return [(path.stem, path.read_bytes()) for path in self.folder.iterdir()]


class TestHttp(SendAdapterConformance):
    password = "geh@im"

    @pytest.fixture(autouse=True)
    def _partner(self) -> Iterator[None]:
        with partner() as self.partner:
            yield

    def make_adapter(self) -> SendAdapter:
        return send_adapter("http", f"{self.partner.address}/orders", {})

    def make_unreachable_adapter(self) -> SendAdapter:
        return send_adapter("http", f"http://me:geh%40im@127.0.0.1:{unused_port()}/orders?key=geh@im", {})

    def make_refusing_adapter(self) -> SendAdapter:
        self.partner.status = 422
        return self.make_adapter()

    def received(self) -> Sequence[tuple[str | None, bytes]]:
        return [(request.headers["X-Crossdock-Message-ID"], request.body) for request in self.partner.requests]


class TestSqlite(SendAdapterConformance):
    binary = False

    @pytest.fixture
    def database_url(self, tmp_path: Path) -> URL:
        path = tmp_path / "received.db"
        path.touch()
        return URL.create("sqlite", database=str(path))

    @pytest.fixture(autouse=True)
    def _database(self, database_url: URL) -> Iterator[None]:
        self.url = url = database_url
        self.engine = create_engine(url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url)
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE received (message text, body text)"))
            connection.execute(text("CREATE TABLE refusing (message text, body text, needed text NOT NULL)"))
        yield
        self.engine.dispose()

    def make_adapter(self) -> SendAdapter:
        return self._adapter(self.url, "received")

    def make_unreachable_adapter(self) -> SendAdapter:
        return self._adapter(self.url.set(database=f"{self.url.database}_away"), "received")

    def make_refusing_adapter(self) -> SendAdapter:
        return self._adapter(self.url, "refusing")

    def received(self) -> Sequence[tuple[str | None, bytes]]:
        with self.engine.connect() as connection:
            rows = connection.execute(text("SELECT message, body FROM received")).all()
        return [(message, body.encode()) for message, body in rows]

    def _adapter(self, url: URL, table: str) -> SendAdapter:
        statement = f"INSERT INTO {table} (message, body) VALUES (:MessageID, :Body)"
        return send_adapter("sql", url.render_as_string(hide_password=False), {"statement": statement})


class TestPostgresql(TestSqlite):
    deduplicates = True
    password = "geh@im"

    @pytest.fixture
    def database_url(self, empty_database: str) -> URL:
        place = {name: str(value) for name, value in conninfo_to_dict(empty_database).items()}
        return URL.create("postgresql", database=place.pop("dbname"), query=place)

    def make_unreachable_adapter(self) -> SendAdapter:
        away = URL.create("postgresql", "me", "geh@im", "127.0.0.1", unused_port(), "shop")
        return self._adapter(away, "received")
