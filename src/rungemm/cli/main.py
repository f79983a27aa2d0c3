"""The console script: finds the command, and turns every refusal into one line on stderr and exit code 2."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from .. import __version__
from ..errors import INSTALL_TORCH, UserError

COMMANDS = ("ladder", "check", "explain", "bench", "tune", "report", "doctor")
"""The commands in the order that --help lists them: each a module of this package with a function of its name."""

app = typer.Typer(
    name="rungemm",
    help="Run GEMM, rung by rung: kernels from naive to faster than cuBLAS, on a GPU or on none.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

for _name in COMMANDS:
    app.command(_name)(getattr(importlib.import_module(f".{_name}", __package__), _name))

# Typer carries its own copy of click from some version on, so click's base error is found through the public one.
_ClickError: type[Exception] = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"rungemm {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; ``arguments`` are those after the program's name, by default the process's own.

    Returns:
        The exit code: 0, 1 or 2 as the package says, 130 when interrupted.
    """
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="rungemm", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UserError as error:
        return _refuse(str(error))
    except _ClickError as error:
        message = getattr(error, "format_message", error.__str__)()
        # No message: help was printed instead.
        return _refuse(f"{message.rstrip('.')}; see rungemm --help") if message else 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "rungemm":
            raise
        remedy = INSTALL_TORCH if error.name == "torch" else f"pip install {error.name}"
        return _refuse(f"this needs {error.name}, which is not installed: {remedy}; see rungemm doctor")
    except (KeyboardInterrupt, typer.Abort):
        print("rungemm: interrupted", file=sys.stderr)
        return 130
    except MemoryError:
        return _refuse("this does not fit in memory: take a smaller shape")
    except BrokenPipeError:
        # The reader went away (`rungemm ladder --list | head -1`): nothing is left to say, and to nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _refuse(message: str) -> int:
    print("rungemm: " + " ".join(message.split()), file=sys.stderr)
    return 2
