"""rungemm: run GEMM, rung by rung."""

__version__ = "0.1.0"
