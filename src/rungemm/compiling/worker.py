"""The child process that compiles: ``python -m rungemm.compiling.worker``, requests on stdin, replies on stdout.

libtriton can abort the process it runs in, so it never runs in the user's. A message is eight bytes of length and a
pickle; both ends are our own processes, joined by a pipe, and nothing is ever unpickled from disk.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import re
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

__all__ = ["main", "read_message", "write_message"]


def write_message(stream: BinaryIO, message: Any) -> None:
    body = pickle.dumps(message)
    stream.write(len(body).to_bytes(8, "little") + body)
    stream.flush()


def read_message(stream: BinaryIO) -> Any:
    """The next message; EOFError when the other end is gone."""
    header = stream.read(8)
    if len(header) < 8:
        raise EOFError
    length = int.from_bytes(header, "little")
    body = stream.read(length)
    if len(body) < length:
        raise EOFError
    return pickle.loads(body)


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints, here or in libtriton, must not land among the replies
    requests = sys.stdin.buffer
    for entry in read_message(requests):
        if entry not in sys.path:
            sys.path.append(entry)
    from ..compat import skip_compiler_hash

    skip_compiler_hash()
    while True:
        try:
            request = read_message(requests)
        except EOFError:
            return
        write_message(replies, _answer(request))


def _answer(request: Any) -> dict[str, Any]:
    """``{"entry": (data, cubin)}``, or ``{"error": one line, "detail": text}``, or ``{"stale": True}``."""
    from .fingerprint import fingerprint

    try:
        _set_environment(dict(request.environment))
        function = request.function.load()
        if fingerprint(function) != request.fingerprint:
            return {"stale": True}
        return {"entry": _compile(request, function)}
    except Exception as error:
        return {"error": _one_line(error), "detail": f"{type(error).__name__}: {error}"}


def _set_environment(wanted: Mapping[str, str]) -> None:
    from ..compat import compiler_environment

    for name in compiler_environment().keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


def _compile(request: Any, function: Any) -> tuple[dict[str, Any], bytes]:
    from ..compat import GluonASTSource, GPUTarget, triton
    from .request import resolved
    from .sass import resources

    source = GluonASTSource(
        function,
        dict(request.signature),
        {(index,): resolved(value) for index, value in request.constexprs},
        {(index,): [["tt.divisibility", 16]] for index in request.attrs},
    )
    said = io.StringIO()
    with contextlib.redirect_stdout(said):  # ptxas -v, which Triton prints when TRITON_DUMP_PTXAS_LOG is set
        kernel = triton.compile(source, target=GPUTarget("cuda", request.arch, 32), options=dict(request.options))
    cubin = kernel.asm["cubin"]
    used = resources(cubin, kernel.metadata.name)
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said.getvalue())
    data = {
        "name": kernel.metadata.name,
        "arch": request.arch,
        "num_warps": kernel.metadata.num_warps,
        "registers": used.registers,
        # Without ptxas's word, the stack is all that can be said: it holds the spills and little else.
        "spill_bytes": int(spills[1]) + int(spills[2]) if spills else used.stack_bytes,
        "stack_bytes": used.stack_bytes,
        "shared_bytes": kernel.metadata.shared,
        "ptx": kernel.asm["ptx"],
        "metadata": _json_only(kernel.metadata._asdict()),
    }
    return data, cubin


def _json_only(value: Any) -> Any:
    """The part of Triton's metadata that JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): _json_only(item) for key, item in value.items() if key not in ("target", "hash")}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json_only(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _one_line(error: BaseException) -> str:
    """The compiler's complaint: the innermost cause's last line, with the source line it points at."""
    where = ""
    while True:
        line = getattr(getattr(error, "node", None), "lineno", None)
        if line is not None:
            where = f" (line {line} of the function)"
        if error.__cause__ is None:
            break
        error = error.__cause__
    text = [part.strip() for part in str(error).splitlines() if part.strip(" ^\t")]
    return (text[-1] if text else type(error).__name__) + where


if __name__ == "__main__":
    main()
