"""Runs and records functions on a stream of their own, as CUDA graphs. Test: tests/torch/cuda_step_test.py"""

from __future__ import annotations

import warnings
from typing import Callable

import torch

_WAITED = "called a synchronizing CUDA operation"  # PyTorch's warning
_ABOUT_MODE = "Synchronization debug mode"  # PyTorch's warning that the mode misses some calls


class NotRecorded(Exception):
    """Why a function cannot be recorded."""


class CudaRecorder:
    """All graphs share memory, so they must not run at the same time."""

    def __init__(self, device: torch.device):
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def call(self, function: Callable):
        """Runs the function once, before and after the caller's work."""
        callers = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(callers)
        with torch.cuda.stream(self._stream):
            result = function()
        callers.wait_stream(self._stream)
        return result

    def call_and_watch(self, function: Callable) -> tuple[object, str | None]:
        """As call. Also returns the line of code that waits for the GPU, which cannot be recorded; None if none does."""
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                result = self.call(function)
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        places = [f"{one.filename}:{one.lineno}" for one in caught if _WAITED in str(one.message)]
        for one in caught:
            if _WAITED not in str(one.message) and _ABOUT_MODE not in str(one.message):
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        return result, f"it waits for the GPU at {places[0]}" if places else None

    def record(self, function: Callable) -> tuple[Callable[[], None], object]:
        """What replays the function, and its result, which every replay overwrites."""
        graph = torch.cuda.CUDAGraph()
        try:
            # thread_local: other threads may continue, such as a data loader's that pins memory
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                result = function()
        except RuntimeError as error:
            raise NotRecorded(str(error).strip().splitlines()[0]) from error
        return graph.replay, result
