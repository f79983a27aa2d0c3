"""No jitted loop remembers a variable by another name: Triton 3.6 then loses it, and a kernel hung on the card.

Before a loop it runs the body once for show and carries the variables whose value has changed. Of ``before = slot``
ahead of the loop and again inside it, both names are one value then, so ``before`` counts as unchanged for ever.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rungemm.kernels

ROOT = Path(rungemm.kernels.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def pairs(node: ast.Assign):
    """Target and value names of an assignment of bare names, tuples taken apart."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def aliases(tree: ast.AST) -> list[tuple[int, str, str]]:
    """(line, name, its alias) of every alias of a variable that the same jitted loop changes."""
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        if not any(getattr(d, "id", getattr(d, "attr", None)) == "jit" for d in function.decorator_list):
            continue
        for loop in ast.walk(function):
            if not isinstance(loop, (ast.For, ast.While)):
                continue
            stored = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            for statement in ast.walk(loop):
                if not isinstance(statement, ast.Assign):
                    continue
                for target, value in pairs(statement):
                    if isinstance(target, ast.Name) and isinstance(value, ast.Name) and value.id in stored:
                        found.append((statement.lineno, target.id, value.id))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_alias_of_a_changing_variable(path):
    assert not aliases(ast.parse(path.read_text()))


def test_the_check_finds_the_fault_that_hung():
    source = """
@jit
def f(steps, STAGES):
    slot = 0
    before = slot
    for step in range(steps):
        arrive(before)
        before, other = slot, 1
        slot = advance(slot)
"""
    assert aliases(ast.parse(source)) == [(8, "before", "slot")]
