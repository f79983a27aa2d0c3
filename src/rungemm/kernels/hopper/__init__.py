"""The wgmma and TMA rungs (sm_90)."""
