"""ctypes bindings of libmillrace.so; include/millrace/c_api.h documents its functions."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from pathlib import Path
from typing import Callable, NamedTuple

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent.parent  # the root, if this is a checkout

ARGUMENTS, RESULTS, RESULT_GRADIENTS, ARGUMENT_GRADIENTS = range(4)


class MillraceError(Exception):
    """An error of the library. `code` is the exit code that `millrace` would return."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_int64),
        ("scalar", ctypes.c_int32),
        ("read_by_backward", ctypes.c_int32),
        ("follows", ctypes.c_int32),
    ]


class Call(ctypes.Structure):
    _fields_ = [
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("results", ctypes.POINTER(ctypes.c_void_p)),
        ("result_gradients", ctypes.POINTER(ctypes.c_void_p)),
        ("argument_gradients", ctypes.POINTER(ctypes.c_void_p)),
        ("saved", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("random", ctypes.POINTER(ctypes.c_uint64)),
        ("stream", ctypes.c_void_p),
    ]


Listener = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)


class TensorInfo(NamedTuple):
    """A tensor of a plan. An absent gradient has the dtype ""."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bytes: int
    scalar: bool
    read_by_backward: bool
    follows: int  # the position of the tensor that it directly follows in memory; -1: none


def library_path() -> Path:
    candidates = [PACKAGE / "lib/libmillrace.so", CHECKOUT / "build/release/libmillrace.so"]
    if named := os.environ.get("MILLRACE_LIBRARY"):
        candidates = [Path(named)]
    for path in candidates:
        if path.exists():
            return path
    raise MillraceError(
        f"libmillrace.so is not at {' or '.join(map(str, candidates))}; run pip install . or "
        "cmake --build build/release --target millrace_shared, or set MILLRACE_LIBRARY to its path", 3)


def find_mkl() -> None:
    """Lets the library find MKL if pip installed it for this Python."""
    for name in ("libmkl_rt.so.3", "libmkl_rt.so.2"):
        path = Path(sys.prefix, "lib", name)
        if path.exists():
            os.environ.setdefault("MILLRACE_MKL", str(path))


@functools.cache
def library() -> ctypes.CDLL:
    path = library_path()
    find_mkl()
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise MillraceError(f"{path} cannot be loaded: {error}", 3) from error
    plan, call = ctypes.c_void_p, ctypes.POINTER(Call)
    for name, returns, *takes in (
        ("version", ctypes.c_char_p),
        ("error", ctypes.c_char_p),
        ("free", None, ctypes.c_void_p),
        ("command", ctypes.c_int, ctypes.c_char_p, Listener, Listener, ctypes.c_void_p,
         ctypes.POINTER(ctypes.c_void_p)),
        ("plan_load", ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)),
        ("plan_unload", None, plan),
        ("plan_count", ctypes.c_int32, plan, ctypes.c_int32),
        ("plan_tensor", _Tensor, plan, ctypes.c_int32, ctypes.c_int32),
        ("plan_device", ctypes.c_char_p, plan),
        ("plan_saved_bytes", ctypes.c_int64, plan),
        ("plan_workspace_bytes", ctypes.c_int64, plan),
        ("plan_predicted_seconds", ctypes.c_double, plan),
        ("plan_forward", ctypes.c_int, plan, call),
        ("plan_backward", ctypes.c_int, plan, call),
    ):
        function = getattr(found, f"millrace_{name}")
        function.restype, function.argtypes = returns, takes
    return found


def check(code: int) -> None:
    """Raises the error of this thread's last call, if `code` is not 0."""
    if code != 0:
        raise MillraceError(library().millrace_error().decode(errors="replace"), code)


def tensor_info(plan: int, which: int, position: int) -> TensorInfo:
    found = library().millrace_plan_tensor(plan, which, position)
    rank = found.rank
    return TensorInfo(found.name.decode(), found.dtype.decode(), tuple(found.shape[:rank]), tuple(found.strides[:rank]),
                      found.bytes, bool(found.scalar), bool(found.read_by_backward), found.follows)


def command_text(request: bytes, progress: Callable[[str], None] | None, notice: Callable[[str], None] | None) -> str:
    def listener(function):
        return Listener(lambda text, _: function(text.decode(errors="replace"))) if function else Listener()

    text = ctypes.c_void_p()
    check(library().millrace_command(request, listener(progress), listener(notice), None, ctypes.byref(text)))
    try:
        return ctypes.string_at(text).decode()
    finally:
        library().millrace_free(text)
