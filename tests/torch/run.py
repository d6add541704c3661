#!/usr/bin/env python3
"""Runs the tests of millrace.torch in a Python environment with PyTorch, which it creates under build/ if necessary.

Exits with 77 and a message if PyTorch cannot be installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
NEED_TRANSFORMERS = {"accelerate_test", "bench_models_test", "compile_models_test", "imported_layer_test",
                     "llama_finetuning_test", "models_test", "training_loss_test"}
sys.path.insert(0, str(ROOT / "bench"))
from peers import environment  # noqa: E402  (the path above comes first)


def install_extras(python: Path) -> None:
    """Installs Hugging Face's transformers for the tests that are skipped without it."""
    ready = python.parent.parent / "ready-transformers"
    if ready.exists():
        return
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--retries", "1", "transformers"],
                          capture_output=True, text=True)
    if done.returncode == 0:
        ready.touch()
    else:
        print(f"transformers could not be installed: {done.stderr.strip().splitlines()[-1:]}", flush=True)


def main() -> int:
    chosen = sys.argv[1:]  # modules; by default all
    named = os.environ.get("MILLRACE_TORCH_PYTHON")
    # Most of thousands of modules are never imported: compile each on its first import and keep the result.
    os.environ["PIP_COMPILE"] = "no"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        python = Path(named) if named else environment.ensure_python(None)
        if not named and (not chosen or NEED_TRANSFORMERS & set(chosen)):
            install_extras(python)
    except (environment.Unavailable, OSError) as error:
        print(f"SKIPPED: the tests of millrace.torch need PyTorch, which is not available here: {error}")
        return SKIPPED
    variables = dict(os.environ, OMP_NUM_THREADS="1")
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests/torch")])
    for name, folder in (("MILLRACE_CACHE_DIR", "cache"), ("MILLRACE_DATA_DIR", "data"),
                         ("TORCHINDUCTOR_CACHE_DIR", "inductor")):
        variables.setdefault(name, str(ROOT / "build/torch-tests" / folder))
    tests = chosen or ["discover", "-s", "tests/torch", "-p", "*_test.py"]
    return subprocess.run([python, "-m", "unittest", *tests, "-v"], cwd=ROOT, env=variables).returncode


if __name__ == "__main__":
    sys.exit(main())
