"""In which thread PyTorch runs a GPU's backward pass: the caller's, from a thread's first call of a plan on.

PyTorch has a thread for every GPU. It sleeps in each forward pass, and waking it, with cold caches, costs the host more
than all that a layer's backward does there. torch.autograd.set_multithreading_enabled, which a thread has for itself,
says that it is not to be used; with several GPUs in one thread it is: they are fed side by side then."""

from __future__ import annotations

import threading

import torch

_THREADS = ("caller", "pytorch")
_wanted = "caller"


class _OfThread(threading.local):
    device: torch.device | None = None  # of its calls so far
    moved = False  # by us, out of PyTorch's thread
    several = False


_here = _OfThread()


def set_backward_thread(which: str) -> None:
    """"caller" (from the start): backward passes on one GPU run in the thread that asks for them, all of a model's.
    "pytorch": as PyTorch does it by itself. Holds for threads that call no plan before, and for this one."""
    global _wanted
    if which not in _THREADS:
        raise ValueError(f"set_backward_thread takes 'caller' or 'pytorch', not {which!r}")
    _wanted = which
    _give_back()
    _here.device = None
    _here.several = False


def before_call(device: torch.device) -> None:
    """Once for a thread and a GPU: what a user sets afterwards stays."""
    if device == _here.device or _here.several or device.type != "cuda":
        return
    if _here.device is not None:
        _here.several = True
        _give_back()
        return
    _here.device = device
    if _wanted == "caller" and torch._C._is_multithreading_enabled():
        torch.autograd.set_multithreading_enabled(False)
        _here.moved = True


def _give_back() -> None:
    if _here.moved:
        torch.autograd.set_multithreading_enabled(True)
    _here.moved = False
