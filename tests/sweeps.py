"""Sweeps in an empty folder with small data, and workers that train nothing."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from natgrad.sweep.pool import Pool

BASE = 'method = "rws"\n[training]\nbatch_size = 8\nepochs = 2\n'
DATA = '[data]\nname = "own.npy"\n'


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Write a sweep's file into an empty folder that has small data of its own."""
    monkeypatch.chdir(tmp_path)
    np.save("own.npy", np.random.default_rng(0).integers(0, 2, (50, 6)).astype(np.uint8))

    def write(text, base=BASE):
        Path("s.toml").write_text(base + text)
        return Path("s.toml")

    return write


FAKE = """
import json, os, sys
from pathlib import Path
for line in sys.stdin:
    job = json.loads(line)
    rate, seed = job["config"]["optimizer"]["learning_rate"], job["config"]["seed"]
    if rate == 0.9:
        os._exit(9)
    if rate == 0.8:
        print(json.dumps({"error": "it did not like it"}), flush=True)
        continue
    place = Path(job["folder"])
    place.mkdir()
    value = -(rate - 0.3) ** 2 + seed / 100
    rows = [{"epoch": n, "seconds": n, "valid_ll": value - abs(n - 1), "test_ll": rate} for n in range(3)]
    rows[-1]["divergences"] = rows[1]["divergences"] = int(rate == 0.35)
    (place / "trace.jsonl").write_text("".join(json.dumps(row) + chr(10) for row in rows))
    warning = "it hardly learns" if rate == 0.7 else None
    print(json.dumps({"error": None, "warning": warning}), flush=True)
"""


@pytest.fixture
def fake(monkeypatch):
    """Workers that train nothing: the validation likelihood is best at the rate 0.3, after one epoch."""

    def start(self, core):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", FAKE], **pipes, stderr=self.log, text=True)

    monkeypatch.setattr(Pool, "_start", start)


def grid(file, rates, more=""):
    return file(DATA + f"[model]\nlayers = [3]\n[optimizer]\nlearning_rate = {rates}\n" + more)
