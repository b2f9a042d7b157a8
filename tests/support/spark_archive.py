"""An archive of the classes of Spark, so that its Java process starts with half the work: made once, kept with the cache.

Java maps it into memory instead of reading and verifying thousands of classes. A Java that it does not fit ignores it.
`python spark_archive.py FILE FOLDER` makes it, from what a run of a few orders loads.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark

from crossdock.dataflow import session
from crossdock.dataflow.java import find_java

_FOLDER = Path(__file__).parents[2] / ".pytest_cache" / "spark"
_OPTIONS = "SPARK_SUBMIT_OPTS"  # what Spark adds to the command of its driver, and of nothing else
_SILENT = "-Xlog:disable"
_WRITING_SECONDS = 600


def use_spark_archive(*, make: bool) -> None:
    """Every Spark that is started from now on uses the archive, if there is one; `make` it otherwise."""
    with TemporaryDirectory(prefix="crossdock-archive-") as folder:
        java = find_java(Path(folder) / "java")
        parts = f"{java.version} {java.origin} {pyspark.__version__} {Path(pyspark.__file__).resolve()}"
        archive = _FOLDER / f"{sha256(parts.encode()).hexdigest()[:12]}.jsa"
        if make:
            _FOLDER.mkdir(parents=True, exist_ok=True)
            _make(archive, Path(folder))
    if archive.exists():
        os.environ[_OPTIONS] = f"-XX:SharedArchiveFile={archive} {_SILENT}"


def _make(archive: Path, folder: Path) -> None:
    """Unless it is there. Another worker of the same run waits until it is. Where it fails there is none."""
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return
        for outdated in _FOLDER.glob("*.jsa"):  # 160 MB, of another Java or Spark
            outdated.unlink()
        fresh = archive.with_suffix(f".{os.getpid()}")
        command = [sys.executable, __file__, str(fresh), str(folder)]
        made = subprocess.run(command, capture_output=True, timeout=_WRITING_SECONDS, check=False)
        if made.returncode == 0 and fresh.exists():
            fresh.replace(archive)
        fresh.unlink(missing_ok=True)


def _run(fresh: Path, folder: Path) -> None:
    from crossdock.cli import main
    from walk import Walk

    walk = Walk(folder / "orders")
    walk.put_orders(30, per_file=10)
    session._STOP_SECONDS = _WRITING_SECONDS  # Java writes it when it ends
    os.environ[_OPTIONS] = f"-XX:ArchiveClassesAtExit={fresh} {_SILENT}"
    os.chdir(walk.folder)
    sys.argv = ["crossdock", "run", walk.application, "--until-idle"]
    main()


if __name__ == "__main__":
    _run(*map(Path, sys.argv[1:]))
