"""Chooses the thread of a GPU's backward pass: the caller's, from the first call of a plan in that thread.

By default PyTorch runs backward in a separate thread for each GPU. It sleeps during forward; waking it, with cold
caches, costs the host more than all the work of a layer's backward. torch.autograd.set_multithreading_enabled(False), a
per-thread setting, avoids it. A thread that uses several GPUs keeps PyTorch's threads, which feed the GPUs
concurrently."""

from __future__ import annotations

import threading

import torch

_THREADS = ("caller", "pytorch")
_wanted = "caller"


class _ThreadState(threading.local):
    device: torch.device | None = None  # of the calls so far
    moved = False  # we disabled PyTorch's thread
    several = False  # devices


_here = _ThreadState()


def set_backward_thread(which: str) -> None:
    """"caller" (the default): backward passes on one GPU run in the calling thread, for the whole model. "pytorch":
    PyTorch's default. Affects this thread and threads that have not called a plan yet."""
    global _wanted
    if which not in _THREADS:
        raise ValueError(f"set_backward_thread takes 'caller' or 'pytorch', not {which!r}")
    _wanted = which
    _restore()
    _here.device = None
    _here.several = False


def before_call(device: torch.device) -> None:
    """Changes the setting once per thread and GPU, so a later setting by the user wins."""
    if device == _here.device or _here.several or device.type != "cuda":
        return
    if _here.device is not None:
        _here.several = True
        _restore()
        return
    _here.device = device
    if _wanted == "caller" and torch._C._is_multithreading_enabled():
        torch.autograd.set_multithreading_enabled(False)
        _here.moved = True


def _restore() -> None:
    if _here.moved:
        torch.autograd.set_multithreading_enabled(True)
    _here.moved = False
