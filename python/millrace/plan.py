"""Runs plans on NumPy arrays, and on any array that supports DLPack."""

from __future__ import annotations

import ctypes
import os
from typing import Sequence

import numpy as np

from millrace import _library
from millrace._library import (ARGUMENT_GRADIENTS, ARGUMENTS, RESULT_GRADIENTS, RESULTS, Call, MillraceError,
                               TensorInfo, check, library, tensor_info)

_ALIGNMENT = 64


def _aligned(count: int) -> np.ndarray:
    memory = np.empty(count + _ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + count]


class Forward:
    """The state that forward passes to backward."""

    def __init__(self, arguments: list, results: list[np.ndarray], saved: np.ndarray, seed: int, step: int):
        self.arguments, self.results, self.saved, self.seed, self.step = arguments, results, saved, seed, step


class Plan:
    """Forward and backward of a layer, loaded from a folder that `millrace optimize` wrote.

        plan = millrace.Plan("layer.plan")
        results, state = plan.forward([x, w], seed=1)
        gradients = plan.backward(state, [d_result])
    """

    def __init__(self, path: str | os.PathLike):
        handle = ctypes.c_void_p()
        self._handle = None
        check(library().millrace_plan_load(os.fsencode(path), ctypes.byref(handle)))
        self._handle = handle.value
        self.path = os.fspath(path)
        self.arguments = self._list(ARGUMENTS)
        self.results = self._list(RESULTS)
        self.result_gradients = self._list(RESULT_GRADIENTS)
        self.argument_gradients = self._list(ARGUMENT_GRADIENTS)
        self.device = library().millrace_plan_device(self._handle).decode()
        self.saved_bytes = library().millrace_plan_saved_bytes(self._handle)
        self.workspace_bytes = library().millrace_plan_workspace_bytes(self._handle)
        self.predicted_seconds = library().millrace_plan_predicted_seconds(self._handle)

    def __del__(self):
        if getattr(self, "_handle", None):
            library().millrace_plan_unload(self._handle)

    def __repr__(self) -> str:
        shown = ", ".join(f"{info.name}: {info.dtype}{list(info.shape)}" for info in self.arguments)
        return f"Plan({self.path!r}: {shown})"

    def _list(self, which: int) -> list[TensorInfo]:
        count = library().millrace_plan_count(self._handle, which)
        return [tensor_info(self._handle, which, position) for position in range(count)]

    def forward(self, arguments: Sequence, seed: int = 0, step: int = 0) -> tuple[list[np.ndarray], Forward]:
        """Returns the results and the state for backward. Dropout masks depend only on seed and step."""
        if self.device != "cpu":
            raise MillraceError(f"the plan is for {self.device}; NumPy arrays are on the CPU; use millrace.torch", 2)
        if len(arguments) != len(self.arguments):
            raise MillraceError(f"{len(arguments)} arguments where the plan has {len(self.arguments)}: "
                                f"{', '.join(info.name for info in self.arguments)}", 2)
        taken = self._all_taken(arguments, self.arguments)
        results = self._all_empty(self.results)
        state = Forward(taken, results, _aligned(self.saved_bytes), seed, step)
        self._run(library().millrace_plan_forward, state, None, None)
        return results, state

    def backward(self, state: Forward, result_gradients: Sequence) -> list[np.ndarray | None]:
        """Returns one gradient per argument, None for a fixed one. May be called again with the same state."""
        if len(result_gradients) != len(self.result_gradients):
            raise MillraceError(f"{len(result_gradients)} gradients where the plan has {len(self.results)} results", 2)
        given = self._all_taken(result_gradients, self.result_gradients)
        made = self._all_empty(self.argument_gradients)
        self._run(library().millrace_plan_backward, state, given, made)
        return made

    def _run(self, function, state: Forward, given: list | None, made: list | None) -> None:
        def pointers(arrays: list | None):
            if arrays is None:
                return None
            return (ctypes.c_void_p * max(1, len(arrays)))(*(None if a is None else a.ctypes.data for a in arrays))

        workspace = _aligned(self.workspace_bytes)
        call = Call(pointers(state.arguments), pointers(state.results), pointers(given), pointers(made),
                    state.saved.ctypes.data, workspace.ctypes.data, (ctypes.c_uint64 * 2)(state.seed, state.step), None)
        check(function(self._handle, ctypes.byref(call)))

    @staticmethod
    def _dtype(info: TensorInfo) -> np.dtype:
        if info.dtype == "bfloat16":
            raise MillraceError(f"'{info.name}' is bfloat16, which NumPy does not support; use millrace.torch", 2)
        return np.dtype(info.dtype)

    def _empty(self, info: TensorInfo, memory: np.ndarray | None = None) -> np.ndarray:
        """A new array in the plan's layout. `memory`: the bytes to use, if it is a slice of another array."""
        order = sorted(range(len(info.shape)), key=lambda axis: -info.strides[axis])
        shape, dtype = [info.shape[axis] for axis in order], self._dtype(info)
        array = np.empty(shape, dtype=dtype) if memory is None else memory.view(dtype).reshape(shape)
        return array.transpose(np.argsort(order))

    def _stacks(self, infos: list[TensorInfo]) -> list[list[int]]:
        """Groups of tensors that must be contiguous in memory: the positions of each, in order."""
        follower = {info.follows: position for position, info in enumerate(infos) if info.follows >= 0}
        stacks = []
        for first, info in enumerate(infos):
            if info.follows < 0 and first in follower:
                stacks.append([first])
                while stacks[-1][-1] in follower:
                    stacks[-1].append(follower[stacks[-1][-1]])
        return stacks

    def _together(self, infos: list[TensorInfo], stack: list[int]) -> list[np.ndarray]:
        """New arrays, contiguous in one block of memory."""
        ends = np.cumsum([infos[position].bytes for position in stack])
        memory = _aligned(int(ends[-1]))
        return [self._empty(infos[position], memory[end - infos[position].bytes : end])
                for position, end in zip(stack, ends)]

    def _all_empty(self, infos: list[TensorInfo]) -> list[np.ndarray | None]:
        made = [None if info.scalar else self._empty(info) for info in infos]
        for stack in self._stacks(infos):
            for position, array in zip(stack, self._together(infos, stack)):
                made[position] = array
        return made

    def _all_taken(self, values: Sequence, infos: list[TensorInfo]) -> list[np.ndarray]:
        """The arrays in the plan's layouts. A stack that is not contiguous is copied."""
        taken = [self._taken(value, info) for value, info in zip(values, infos)]
        for stack in self._stacks(infos):
            if all(taken[one].ctypes.data + infos[one].bytes == taken[next_one].ctypes.data
                   for one, next_one in zip(stack, stack[1:])):
                continue
            for position, array in zip(stack, self._together(infos, stack)):
                array[...] = taken[position]
                taken[position] = array
        return taken

    def _taken(self, value, info: TensorInfo) -> np.ndarray:
        """The array itself if it has the plan's layout, else a copy that has."""
        if info.scalar:
            return np.array(value, dtype=np.float64).reshape(())
        if not isinstance(value, np.ndarray):
            value = np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
        if value.dtype != self._dtype(info):
            raise MillraceError(f"'{info.name}' is {value.dtype} where the plan has {info.dtype}; use .astype()", 2)
        if value.shape != info.shape:
            raise MillraceError(f"'{info.name}' is {list(value.shape)} where the plan has {list(info.shape)}; a plan "
                                "is for one shape", 2)
        if all(n == 1 or s == w * value.itemsize for n, s, w in zip(info.shape, value.strides, info.strides)) and (
                value.ctypes.data % value.itemsize == 0):
            return value
        laid_out = self._empty(info)
        laid_out[...] = value
        return laid_out
