"""The fp32 rungs on the CUDA cores (FFMA)."""
