"""scikit-learn estimators."""

from natgrad.models.helmholtz.estimator import HelmholtzMachine

__all__ = ["HelmholtzMachine"]
