"""Sample a model that `run.model.save(FILE)` wrote, with NumPy and safetensors only.

python load_without_natgrad.py FILE
"""

import sys

import numpy as np
from safetensors import safe_open

with safe_open(sys.argv[1], framework="numpy") as file:
    about, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
random, off = np.random.default_rng(0), float(about["off"])
depth = about["sizes"].count(",")
logit = np.tile(arrays["prior"], (1000, 1))
for i in reversed(range(depth + 1)):
    values = np.where(random.random(logit.shape) < 1 / (1 + np.exp(-logit)), 1.0, off)
    if i > 0:
        logit = values @ arrays[f"generation.{i - 1}.weight"].T + arrays[f"generation.{i - 1}.bias"]
np.save("samples.npy", (values == 1).astype(np.uint8))
