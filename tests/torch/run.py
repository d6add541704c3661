#!/usr/bin/env python3
"""The tests of millrace.torch, in a Python with PyTorch that is made under build/ where it is not there.

Leaves with 77, saying why, where PyTorch cannot be had.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
sys.path.insert(0, str(ROOT / "bench"))
from peers import environment  # noqa: E402  (the path above comes first)


def install_extras(python: Path) -> None:
    """Hugging Face's models, for the tests of accelerate, which say so where they are not there."""
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
    chosen = sys.argv[1:]  # modules; all where none is named
    named = os.environ.get("MILLRACE_TORCH_PYTHON")
    # Of thousands of modules most are never imported: each is compiled when it is, and kept then.
    os.environ["PIP_COMPILE"] = "no"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        python = Path(named) if named else environment.ensure_python(None)
        if not named and (not chosen or "accelerate_test" in chosen):
            install_extras(python)
    except (environment.Unavailable, OSError) as error:
        print(f"SKIPPED: the tests of millrace.torch need PyTorch, which is not to be had here: {error}")
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
