"""What a coroutine must not call, by its full name, and what to write instead.

A coroutine is run again from its beginning whenever its instance is taken up. What gives another value then, or acts on
the world, belongs elsewhere. Only names of which that is certain are here: a false alarm is worse than a miss.
"""

from __future__ import annotations

_CLOCK = "gives another time when the code is replayed; write process.now()"
_RANDOM = "gives another value when the code is replayed; write process.random, as in process.random.random()"
_UUID = "gives another value when the code is replayed; write process.uuid()"
_ELSEWHERE = "is done again at every replay; send a message to a port, or do it in a function for process.atomic"
_THREADS = "runs beside the coroutine, where nothing is recorded; write await process.parallel(...)"
_LOOP = "needs an event loop, and there is none; write {}"

OF_THE_MACHINE = "may be another where the code is replayed; put it into a message, or read it in process.atomic"
_LOGGED_AGAIN = "writes again at every replay; write process.log.info(...)"
LOGGED = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})

_EXACT: dict[str, str] = {
    **dict.fromkeys(
        [
            "datetime.datetime.now",
            "datetime.datetime.utcnow",
            "datetime.datetime.today",
            "datetime.date.today",
            "time.time",
            "time.time_ns",
            "time.monotonic",
            "time.monotonic_ns",
            "time.perf_counter",
            "time.perf_counter_ns",
            "time.process_time",
            "time.thread_time",
        ],
        _CLOCK,
    ),
    "time.sleep": "holds up the whole host; write await process.delay(timedelta(...))",
    **dict.fromkeys(["uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7"], _UUID),
    **dict.fromkeys(["os.urandom", "os.getrandom"], _RANDOM),
    "asyncio.sleep": _LOOP.format("await process.delay(timedelta(...))"),
    "asyncio.gather": _LOOP.format("await process.parallel(...)"),
    "asyncio.TaskGroup": _LOOP.format("await process.parallel(...)"),
    "asyncio.wait": _LOOP.format("await process.listen(...)"),
    "asyncio.wait_for": _LOOP.format("await process.receive(..., timeout=...)"),
    "builtins.print": "prints again at every replay; write process.log.info(...)",
    "builtins.open": _ELSEWHERE,
    "builtins.id": "is another number at every replay; write process.uuid(), or take the id of a message",
    "builtins.hash": "is another number in every process; write hashlib.sha256(...)",
    **dict.fromkeys((f"logging.{verb}" for verb in LOGGED), _LOGGED_AGAIN),
    **dict.fromkeys(
        ["os.getenv", "os.environ.get", "os.getpid", "os.cpu_count", "socket.gethostname", "platform.node"],
        OF_THE_MACHINE,
    ),
    "builtins.input": "waits for a person at the host; receive a message instead",
    **dict.fromkeys(
        [
            "io.open",
            "os.open",
            "os.listdir",
            "os.scandir",
            "os.walk",
            "os.remove",
            "os.unlink",
            "os.rename",
            "os.replace",
            "os.mkdir",
            "os.makedirs",
            "os.rmdir",
            "os.removedirs",
            "os.stat",
            "os.system",
            "os.popen",
            "os.path.exists",
            "os.path.isfile",
            "os.path.isdir",
            "os.path.getsize",
            "os.path.getmtime",
            "socket.socket",
            "socket.create_connection",
            "socket.create_server",
            "socket.gethostbyname",
            "socket.getaddrinfo",
            "sqlite3.connect",
            "psycopg.connect",
            "psycopg2.connect",
            "sqlalchemy.create_engine",
            "requests.Session",
            "requests.session",
            "httpx.Client",
            "httpx.AsyncClient",
            "aiohttp.ClientSession",
            "smtplib.SMTP",
            "smtplib.SMTP_SSL",
            "ftplib.FTP",
            *(
                f"{library}.{verb}"
                for library in ("requests", "httpx")
                for verb in ("get", "post", "put", "patch", "delete", "head", "options", "request", "stream")
            ),
        ],
        _ELSEWHERE,
    ),
    **dict.fromkeys(["threading.Thread", "threading.Timer", "multiprocessing.Process"], _THREADS),
}
# They are of now unless they are given a time.
_OF_NOW = frozenset({"time.localtime", "time.gmtime", "time.ctime", "time.asctime"})
_WHOLE: dict[str, str] = {
    "random": _RANDOM,
    "numpy.random": _RANDOM,
    "secrets": _RANDOM,
    "asyncio": _LOOP.format("what process has: delay, listen, parallel"),
    "urllib.request": _ELSEWHERE,
    "http.client": _ELSEWHERE,
    "subprocess": _ELSEWHERE,
    "shutil": _ELSEWHERE,
    "tempfile": _ELSEWHERE,
    "concurrent.futures": _THREADS,
}
# Made from a seed, these give the same values at every replay.
_SEEDED = frozenset({"random.Random", "numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.Generator"})
_FILE_VERBS = frozenset(
    {
        "open",
        "read_text",
        "read_bytes",
        "write_text",
        "write_bytes",
        "exists",
        "is_file",
        "is_dir",
        "iterdir",
        "glob",
        "rglob",
        "mkdir",
        "rmdir",
        "unlink",
        "touch",
        "rename",
        "replace",
        "stat",
    }
)
_PURE = frozenset(
    {
        "asyncio.iscoroutine",
        "asyncio.iscoroutinefunction",
        "asyncio.isfuture",
        "secrets.compare_digest",
        "subprocess.list2cmdline",
    }
)


def advice_for_call(name: str, *, has_arguments: bool) -> str | None:
    """What is wrong with calling this, and what to write instead; None if nothing is."""
    if name in _EXACT:
        return _EXACT[name]
    if name in _OF_NOW and not has_arguments:
        return _CLOCK
    if name in _PURE or (name in _SEEDED and has_arguments) or _is_exception(name):
        return None
    return next((advice for module, advice in _WHOLE.items() if name.startswith(f"{module}.")), None)


def advice_for_value(name: str, *, has_arguments: bool) -> str | None:
    """The same for what a module keeps of such a call: what the clock and chance gave is another in every process."""
    advice = advice_for_call(name, has_arguments=has_arguments)
    return advice if advice in (_CLOCK, _RANDOM, _UUID) else None


def advice_for_path(verb: str) -> str | None:
    """The same for a method of a pathlib.Path."""
    return _ELSEWHERE if verb in _FILE_VERBS else None


def _is_exception(name: str) -> bool:
    return name.endswith(("Error", "Exception"))
