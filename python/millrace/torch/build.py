"""Finds the operator library in the package. A package without one compiles it for the installed PyTorch, once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from millrace import _library
from millrace._library import MillraceError
from millrace.plan_cache import cache_directory, private_directory

OLDEST = (2, 10)  # the first whose stable ABI is sufficient
_SHIPPED = _library.PACKAGE / "lib/libmillrace_torch.so"  # for this and all later versions
_TARGET = f"0x{OLDEST[0]:02x}{OLDEST[1]:02x}000000000000"


def _sources() -> tuple[Path, Path]:
    """The operator's source and the include folder of the C API: in the package, else in the checkout."""
    for source, include in (
        (_library.PACKAGE / "torch/csrc/operator.cpp", _library.PACKAGE / "include"),
        (_library.CHECKOUT / "bindings/torch/operator.cpp", _library.CHECKOUT / "include"),
    ):
        if source.exists():
            return source, include
    raise MillraceError("the operator's source is not in the package; install millrace again", 3)


def operator_library() -> Path:
    """Returns its path. If the package has none (cmake/torch_operator.cmake), compiles it once for each version of
    PyTorch and of Millrace, which takes some seconds."""
    version = tuple(int(number) for number in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST:
        raise MillraceError(f"PyTorch {torch.__version__} is too old: millrace.torch needs 2.10 or later", 3)
    if _SHIPPED.exists():
        return _SHIPPED
    source, include = _sources()
    library = _library.library_path()
    texts = [path.read_text() for path in (source, *sorted(source.parent.glob("*.h")), include / "millrace/c_api.h")]
    key = "\0".join([*texts, torch.__version__, str(library)])
    folder = private_directory(private_directory(cache_directory() / "torch")
                               / hashlib.sha256(key.encode()).hexdigest()[:40])
    made = folder / "libmillrace_torch.so"
    if not made.exists():
        _compile(source, include, library, made)
    return made


def _runtime() -> list[str]:
    """The C++ runtime that PyTorch uses. Some compilers would link their own into the operator; PyTorch could not
    catch exceptions from that one, and the process would abort."""
    with open("/proc/self/maps") as maps:
        loaded = (line.split(maxsplit=5)[-1].strip() for line in maps)
        return next(([path] for path in loaded if Path(path).name.startswith("libstdc++.so.6")), [])


def _compile(source: Path, include: Path, library: Path, made: Path) -> None:
    compiler = shutil.which(os.environ.get("CXX") or "g++") or shutil.which("c++")
    if compiler is None:
        raise MillraceError("no C++ compiler for the operator: apt-get install g++, or set CXX", 3)
    print("millrace: compiling the operator for PyTorch (once; some seconds)", file=sys.stderr, flush=True)
    headers = Path(torch.__file__).parent / "include"
    with tempfile.TemporaryDirectory(dir=made.parent) as work:  # renamed when complete
        out = Path(work, made.name)
        command = [compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w", f"-I{include}",
                   f"-isystem{headers}", f"-DTORCH_TARGET_VERSION={_TARGET}", str(source), *_runtime(), "-o",
                   str(out), f"-L{library.parent}", f"-l:{library.name}", f"-Wl,-rpath,{library.parent}",
                   f"-L{headers.parent / 'lib'}", "-ltorch", "-ltorch_cpu"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise MillraceError(f"the operator does not compile:\n{' '.join(command)}\n{done.stderr[-4000:]}", 3)
        out.rename(made)
