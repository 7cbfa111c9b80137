"""Proofs by fault: kills at every step, power cuts, failing calls, damaged bytes. See docs/testing.md."""
