"""scikit-learn estimators of all kinds of model, under their public names.

    from natgrad.sklearn import HelmholtzMachine

Each is imported from its kind's folder when it is asked for.
"""

from typing import Any

from natgrad.models import registry


def __getattr__(name: str) -> Any:
    for spec in registry.specs():
        if name in spec.estimators:
            return registry.resolve_reference(spec.estimators[name])
    raise AttributeError(f"module 'natgrad.sklearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(name for spec in registry.specs() for name in spec.estimators)
