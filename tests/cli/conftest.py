"""Running the command line inside this process: what it printed, and its exit code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from rungemm.cli import main


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout, which must be JSON and nothing else."""
        return json.loads(self.out)


@pytest.fixture
def rungemm(capsys, monkeypatch):
    """``rungemm("ladder", "--list")`` runs that command on a machine without a GPU, 100 columns wide."""
    monkeypatch.setattr("rungemm.hardware.detect_gpu", lambda: None)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return run


@pytest.fixture
def refused(rungemm):
    """The one line on stderr of a command that must be refused: exit code 2, nothing on stdout, no traceback."""

    def run(*arguments: object) -> str:
        ran = rungemm(*arguments)
        assert ran.code == 2, ran
        assert ran.out == "", ran
        lines = ran.err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("rungemm: "), ran.err
        assert "Traceback" not in ran.err
        return lines[0]

    return run
