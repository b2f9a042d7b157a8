"""Settings of one process: where it works and what it connects to. Options win over `CROSSDOCK_*` variables."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """`database` empty means the embedded PostgreSQL under `home`; `master` empty means Spark on this machine."""

    model_config = SettingsConfigDict(env_prefix="CROSSDOCK_", frozen=True, extra="ignore")

    home: Path = Path(".crossdock")
    database: str = ""
    master: str = ""
    spark_ui: bool = False
    spark_conf: dict[str, str] = Field(default={}, description="more settings of Spark, as a JSON object")
    purge_suspended_after: timedelta | None = Field(
        default=None, gt=timedelta(0), description="age at which suspended messages are ended; never by default"
    )
    text_limit: int = Field(default=256, gt=0, description="longest promoted text, in characters")
    time_limit: float = Field(default=300, gt=0, description="longest time of the pipeline for a source, in seconds")
