"""What a run ran on: versions, computer, devices."""

import os
import platform
from importlib.metadata import version
from typing import Any

import jax


def describe() -> dict[str, Any]:
    """Versions and machine, as plain JSON."""
    names = ("natgrad", "jax", "jaxlib", "optax", "numpy")
    return {
        "versions": {"python": platform.python_version()} | {name: version(name) for name in names},
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.devices()],
        "x64": jax.numpy.zeros(()).dtype == jax.numpy.float64,
    }
