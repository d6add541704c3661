"""Creates a Python environment with torch and numpy under build/, and describes the machine and versions of a run."""

from __future__ import annotations

import datetime
import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

CALM_SECONDS, CALM_SHARE = 0.3, 0.05  # calm: at most this share of the cores busy for this long


class Unavailable(Exception):
    """This machine lacks something; the message says what to do."""


def say(message: str) -> None:
    print(f"compare: {message}", file=sys.stderr, flush=True)


def environment_folder(torch_version: str | None) -> Path:
    return ROOT / f"build/bench-venv{f'-{torch_version}' if torch_version else ''}"


def install_commands(pip: list[str], architecture: str, torch_version: str | None) -> list[list[str]]:
    """Commands to try in order.

    For aarch64, PyPI's wheels have a faster BLAS (NVPL; OpenBLAS up to 2.10) than those of torch's own index. For
    x86-64, that index has CPU builds without gigabytes of CUDA, but it is not reachable from every network.
    """
    from_pypi = [*pip, f"torch=={torch_version}" if torch_version else "torch", "numpy"]
    quick = ["--retries", "0", "--timeout", "15"]
    return [from_pypi] if architecture == "aarch64" else [[*from_pypi, "--index-url", CPU_INDEX, *quick], from_pypi]


def ensure_python(torch_version: str | None) -> Path:
    """The Python of the environment, which is created if it is missing or incomplete."""
    folder = environment_folder(torch_version)
    python, ready = folder / "bin/python", folder / "ready"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / ".bench-venv-lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # concurrent runs create it only once
        if not (ready.exists() and python.exists()):
            _make_environment(folder, python, torch_version)
            ready.touch()
    return python


def _make_environment(folder: Path, python: Path, torch_version: str | None) -> None:
    say(f"making {folder.relative_to(ROOT)} with torch and numpy (once; a minute or two, 1 to 6 GB)")
    start = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, text=True)
    if made.returncode != 0:
        raise Unavailable(f"{sys.executable} -m venv failed: {_last_lines(made)}\n"
                          "on Debian and Ubuntu: apt-get install python3-venv")
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    for command in install_commands(pip, platform.machine(), torch_version):
        say(" ".join(command[3:]))
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            say(f"installed in {time.monotonic() - start:.0f} s")
            return
        say(f"failed: {_last_lines(done, 1)}")
    raise Unavailable(f"torch could not be installed: {_last_lines(done)}\n"
                      "without a network, pass --python with a Python that has torch and numpy")


def _last_lines(done: subprocess.CompletedProcess, count: int = 4) -> str:
    return "\n".join((done.stderr or done.stdout or "").strip().splitlines()[-count:])


def why_not_compile() -> str | None:
    """What torch.compile is missing on this machine to build for the CPU, or None."""
    if not shutil.which(os.environ.get("CXX", "g++")):
        return "no C++ compiler: apt-get install g++"
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    return None if header.exists() else f"{header} is missing: apt-get install python3-dev"


def output_of(*command: str) -> str:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def busy_and_total() -> tuple[int, int]:
    """Busy and total ticks of all cores since boot."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def wait_for_calm(limit_seconds: float) -> None:
    """Waits until other processes are idle for a moment, at most for the limit."""
    end = time.monotonic() + limit_seconds
    while time.monotonic() < end:
        busy, total = busy_and_total()
        time.sleep(CALM_SECONDS)
        busy_then, total_then = busy_and_total()
        if busy_then - busy <= CALM_SHARE * (total_then - total):
            return


def cpu_name() -> str:
    model = re.search(r"^Model name:\s*(.+)$", output_of("lscpu"), re.M)
    return model[1] if model else "unknown"


def gpu() -> dict[str, str]:
    """The first GPU as nvidia-smi describes it; empty if there is none."""
    fields = ("name", "driver_version", "memory.total", "clocks.max.sm")
    printed = output_of("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader").splitlines()
    values = [value.strip() for value in printed[0].split(",")] if printed else []
    return dict(zip(fields, values)) if len(values) == len(fields) else {}


def circumstances(threads: int) -> dict:
    compiler = output_of(os.environ.get("CXX", "g++"), "--version").splitlines()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"architecture": platform.machine(), "cpu": cpu_name(), "cores": os.cpu_count()},
        "threads": threads,
        "git_commit": output_of("git", "rev-parse", "HEAD"),
        "uncommitted": output_of("git", "status", "--porcelain", "src", "include", "tools", "models").splitlines(),
        "compiler": compiler[0] if compiler else "none",
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }
