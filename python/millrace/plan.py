"""Runs plans on NumPy arrays, and on any array that supports DLPack."""

from __future__ import annotations

import ctypes
import difflib
import os
from typing import Sequence

import numpy as np

from millrace import _library
from millrace.half import from_bfloat16, to_bfloat16
from millrace._library import (ARGUMENT_GRADIENTS, ARGUMENTS, RESULT_GRADIENTS, RESULTS, Call, MillraceError,
                               TensorInfo, check, library, tensor_info)

_ALIGNMENT = 64


def _aligned(count: int) -> np.ndarray:
    count = max(count, 1)  # an empty slice would have the address of its array
    memory = np.empty(count + _ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + count]


def _named(infos: Sequence[TensorInfo], name: str, what: str) -> TensorInfo:
    known = {info.name: info for info in infos if info.dtype}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1)
    remedy = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(known)}"
    raise MillraceError(f"the plan has no {what} '{name}'; {remedy}", 2)


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

    def argument(self, name: str) -> TensorInfo:
        """The argument of this name; an error that suggests another if there is none."""
        return _named(self.arguments, name, "argument")

    def result(self, name: str) -> TensorInfo:
        return _named(self.results, name, "result")

    def gradient(self, name: str) -> TensorInfo:
        """The gradient of an argument or of a result: "d_x"."""
        return _named(self.argument_gradients + self.result_gradients, name, "gradient")

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
        return np.dtype("uint16" if info.dtype == "bfloat16" else info.dtype)  # NumPy has no bfloat16: its bits

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
        """The array itself if it has the plan's layout, otherwise a copy in that layout."""
        if info.scalar:
            return np.array(value, dtype=np.float64).reshape(())
        if not isinstance(value, np.ndarray):
            value = np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
        if value.dtype != self._dtype(info):
            remedy = "use millrace.to_bfloat16()" if info.dtype == "bfloat16" else "use .astype()"
            raise MillraceError(f"'{info.name}' is {value.dtype} where the plan has {info.dtype}; {remedy}", 2)
        if value.shape != info.shape:
            raise MillraceError(f"'{info.name}' is {list(value.shape)} where the plan has {list(info.shape)}; a plan "
                                "is for one shape", 2)
        if all(n == 1 or s == w * value.itemsize for n, s, w in zip(info.shape, value.strides, info.strides)) and (
                value.ctypes.data % value.itemsize == 0):
            return value
        laid_out = self._empty(info)
        laid_out[...] = value
        return laid_out


class PlanTensors:
    """Memory for all tensors of a plan, with access by name.

        tensors = millrace.PlanTensors(plan)
        tensors.set("x", values)
        tensors.step(seed=1)
        tensors.get("out"), tensors.get("d_x")
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        lists = (plan.arguments, plan.results, plan.result_gradients, plan.argument_gradients)
        self._infos = {info.name: info for infos in lists for info in infos if info.dtype}
        self._arrays = {}
        for infos in lists:
            for info, array in zip(infos, plan._all_empty(infos)):
                if info.dtype:
                    self._arrays[info.name] = np.zeros(()) if array is None else array
                    self._arrays[info.name][...] = 0

    def set(self, name: str, values) -> None:
        """Elements in the program's order of axes, converted to the tensor's type."""
        info = _named(self._infos.values(), name, "tensor")
        values = np.asarray(values)
        if values.size != self._arrays[name].size:
            raise MillraceError(f"{values.size} values for '{name}'; it has {self._arrays[name].size} elements", 2)
        values = values.reshape(self._arrays[name].shape)
        self._arrays[name][...] = to_bfloat16(values) if info.dtype == "bfloat16" else values

    def get(self, name: str) -> np.ndarray:
        """The elements; those of a bfloat16 tensor as float32."""
        info = _named(self._infos.values(), name, "tensor")
        array = self._arrays[name]
        return from_bfloat16(np.ascontiguousarray(array)) if info.dtype == "bfloat16" else array.copy()

    def data(self, name: str) -> np.ndarray:
        """The tensor's own memory, in the plan's layout; the bits if it is bfloat16."""
        _named(self._infos.values(), name, "tensor")
        return self._arrays[name]

    def step(self, seed: int = 0, step: int = 0) -> None:
        """Forward, then backward."""
        plan = self.plan
        results, state = plan.forward([self._arrays[info.name] for info in plan.arguments], seed, step)
        gradients = plan.backward(state, [self._arrays[info.name] for info in plan.result_gradients])
        for infos, made in ((plan.results, results), (plan.argument_gradients, gradients)):
            for info, array in zip(infos, made):
                if array is not None:
                    self._arrays[info.name][...] = array
