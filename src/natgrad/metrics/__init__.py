"""The Fisher metric as an operator, one small block per unit."""
