"""Settings of one process: where it works and what it connects to. Options win over `CROSSDOCK_*` variables."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

KEEP_TRACK = timedelta(days=7)


class Settings(BaseSettings):
    """`database` empty means the embedded PostgreSQL under `home`; `master` empty means Spark on this machine."""

    model_config = SettingsConfigDict(env_prefix="CROSSDOCK_", frozen=True, extra="ignore")

    home: Path = Path(".crossdock")
    database: str = ""
    master: str = ""
    person: str = Field(default="", description="for whom commands act; the user of the operating system by default")
    reason: str = Field(default="", description="why, as the audit keeps it")
    spark_ui: bool = False
    spark_conf: dict[str, str] = Field(default={}, description="more settings of Spark, as a JSON object")
    purge_suspended_after: timedelta | None = Field(
        default=None, gt=timedelta(0), description="age at which suspended messages are ended; never by default"
    )
    keep_track: timedelta = Field(
        default=KEEP_TRACK, gt=timedelta(0), description="age at which what was tracked is forgotten, in whole days"
    )
    keep_bodies: timedelta = Field(
        default=KEEP_TRACK, gt=timedelta(0), description="the same for bodies that were tracked, if they go earlier"
    )
    metrics: str = Field(default="", description="HOST:PORT to serve /metrics and /health at")
    text_limit: int = Field(default=256, gt=0, description="longest promoted text, in characters")
    time_limit: float = Field(default=300, gt=0, description="longest time of the pipeline for a source, in seconds")
