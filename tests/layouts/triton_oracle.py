"""Asks Triton's own compiler about layouts; run as a child process, since Triton aborts on some of them.

Reads lines of JSON ``[kind, layout, shape]`` (the layout as its repr) from standard input, writes one JSON line
per case: bases for ``distributed`` and ``shared``, or ``{"error": ...}``.
"""

from __future__ import annotations

import json
import sys

from triton._C.libtriton import gluon_ir, ir
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

FOUND: list[object] = []


@gl._core.builtin
def note_layout(buffer, _semantic=None):
    FOUND.append(buffer.layout)


@gluon.jit
def reshaped(LAYOUT: gl.constexpr, SHAPE: gl.constexpr, TO: gl.constexpr, TYPE: gl.constexpr):
    """Reshaping a shared buffer across its columns makes Triton spell its layout out as bases."""
    buffer = gl.allocate_shared_memory(TYPE, SHAPE, LAYOUT)
    note_layout(buffer.reshape(TO))


class Oracle:
    def __init__(self) -> None:
        self.target = GPUTarget("cuda", 90, 32)
        self.backend = CUDABackend(self.target)
        self.context = ir.context()
        ir.load_dialects(self.context)
        self.backend.load_dialects(self.context)
        self.builder = gluon_ir.GluonOpBuilder(self.context)

    def distributed(self, layout, shape):
        linear = self.builder.to_linear_layout(layout._to_ir(self.builder), shape)
        if not hasattr(linear, "reg_bases"):  # an identity comes back as a plain layout
            return {"layout": repr(linear)}
        return {"register": linear.reg_bases, "lane": linear.lane_bases, "warp": linear.warp_bases}

    def shared(self, layout, shape):
        """Bases with the contiguous dimension split in two, folded back."""
        bits = getattr(layout, "element_bitwidth", 16)
        element = {8: gl.int8, 16: gl.float16, 32: gl.float32}[bits]
        split = 0 if getattr(layout, "transposed", False) else len(shape) - 1
        to = [*shape[:split], shape[split] // 2, 2, *shape[split + 1 :]]
        FOUND.clear()
        names = ("LAYOUT", "SHAPE", "TO", "TYPE")
        source = GluonASTSource(
            reshaped,
            dict.fromkeys(names, "constexpr"),
            {(i,): value for i, value in enumerate((layout, shape, to, element))},
            {},
        )
        options = self.backend.parse_options({"num_warps": 4})
        source.make_ir(self.target, options, self.backend.get_codegen_implementation(options), {}, self.context)
        (found,) = FOUND
        folded = [[*v[:split], v[split] * 2 + v[split + 1], *v[split + 2 :]] for v in found.offset_bases]
        return {"offset": folded}

    def conflicts(self, case):
        distributed, shared, shape, bits = case
        return self.builder.get_shared_bank_conflicts(
            distributed._to_ir(self.builder), shared._to_ir(self.builder), shape, bits
        )


def main() -> None:
    oracle = Oracle()
    scope = {name: getattr(gl, name) for name in dir(gl) if name.endswith("Layout")}
    for line in sys.stdin:
        kind, text, shape = json.loads(line)
        try:
            answer = getattr(oracle, kind)(eval(text, scope), shape)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
