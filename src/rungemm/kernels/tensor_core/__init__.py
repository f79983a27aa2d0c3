"""The mma.sync rungs (sm_80 and up)."""
