"""Worker processes, kept for the next compilation: started when needed, replaced when they die, ended with us."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from .errors import CompileError
from .request import Request
from .worker import read_message, write_message

__all__ = ["TIMEOUT_S", "ask"]

TIMEOUT_S = 600.0
"""A compilation that takes longer is ended: ptxas on a kernel that spills everything can run for hours."""

_TAIL_BYTES = 65536


class _Worker:
    """One child. Its standard error goes to a file, so that a crash's last words can be quoted."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rungemm-compile-"))
        package_root = str(Path(__file__).resolve().parents[2])
        search = [package_root, *(entry or os.getcwd() for entry in sys.path)]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([package_root, *filter(None, [os.environ.get("PYTHONPATH")])]),
            # Its own, so that each result is really compiled and the user's Triton cache does not grow.
            "TRITON_CACHE_DIR": str(self.folder / "triton"),
            "TRITON_DUMP_PTXAS_LOG": "1",
            "PYTHONUNBUFFERED": "1",
        }
        self.errors = open(self.folder / "stderr", "w+b")  # noqa: SIM115 - closed with the worker
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rungemm.compiling.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
        )
        with contextlib.suppress(OSError):
            write_message(self._stdin, search)

    @property
    def _stdin(self) -> Any:
        return self.process.stdin

    def ask(self, request: Request) -> dict[str, Any]:
        """The worker's reply, or an "error" reply of ours when it died; then ``alive`` is False."""
        start = os.fstat(self.errors.fileno()).st_size
        timer = threading.Timer(TIMEOUT_S, self.process.kill)
        timer.start()
        try:
            write_message(self._stdin, request)
            reply = read_message(self.process.stdout)  # type: ignore[arg-type]
        except (EOFError, OSError):
            timed_out = not timer.is_alive()
            code = self.process.wait()
            said = self._said(start)
            why = f"took more than {TIMEOUT_S:.0f} s" if timed_out else _last_words(said) or f"exit status {code}"
            return {"error": f"the compiler ended its process: {why}", "detail": said}
        finally:
            timer.cancel()
            shutil.rmtree(self.folder / "triton", ignore_errors=True)
        if "error" in reply:
            said = self._said(start)
            # "PassManager::run failed" and the like say nothing; what went to stderr does.
            words = _last_words(said, errors_only=True)
            if words and words not in reply["error"]:
                reply["error"] += f": {words}"
            reply["detail"] += "\n" + said
        os.truncate(self.folder / "stderr", 0)
        self.errors.seek(0)
        return reply

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def _said(self, start: int) -> str:
        end = os.fstat(self.errors.fileno()).st_size
        begin = max(start, end - _TAIL_BYTES)
        return os.pread(self.errors.fileno(), end - begin, begin).decode(errors="replace")

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self.process.kill()
        self.process.wait()
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _last_words(said: str, errors_only: bool = False) -> str:
    """The line of a crash report that says what went wrong, else its last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"LLVM ERROR|Assertion|\berror:|fatal", line)]
    if telling:
        return telling[0][:300]
    return "" if errors_only or not lines else lines[-1][:300]


class _Pool:
    """Idle workers of this process. A fork gets a pool of its own: pipes cannot be shared."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.lock = threading.Lock()
        self.idle: list[_Worker] = []

    def take(self, fresh: bool) -> _Worker:
        with self.lock:
            if fresh:
                for worker in self.idle:
                    worker.close()
                self.idle.clear()
            while self.idle:
                worker = self.idle.pop()
                if worker.alive:
                    return worker
                worker.close()
        return _Worker()

    def give(self, worker: _Worker) -> None:
        if not worker.alive:
            worker.close()
            return
        with self.lock:
            self.idle.append(worker)

    def close(self) -> None:
        with self.lock:
            if self.owner == os.getpid():
                for worker in self.idle:
                    worker.close()
            self.idle.clear()


_pool = _Pool()
atexit.register(lambda: _pool.close())


def ask(request: Request) -> tuple[dict[str, Any], bytes]:
    """Compile in a child: the result's JSON data and its cubin.

    Raises:
        CompileError: the compiler rejected the kernel, crashed, or the source on disk is no longer what this process
            imported.
    """
    global _pool
    if _pool.owner != os.getpid():
        _pool = _Pool()
    for fresh in (False, True):
        worker = _pool.take(fresh)
        try:
            reply = worker.ask(request)
        except BaseException:
            worker.close()
            raise
        _pool.give(worker)
        if "entry" in reply:
            return reply["entry"]
        if "error" in reply:
            raise CompileError(f"{request.title}: {reply['error']}", reply["detail"])
    raise CompileError(
        f"{request.title}: {request.function.path} or a global it names changed since this process imported it: "
        "start the program again"
    )
