"""Runs the pieces of a compiled model: a region by its plan or by Inductor, whichever is faster, the rest by Inductor.
Test: tests/torch/compile_backend_test.py"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Callable, NamedTuple

import torch
import torch._inductor
from torch import fx

from millrace import plan_cache
from millrace._library import MillraceError
from millrace.torch import operator, plans
from millrace.torch.importer import Program

_ROUNDS = 5  # of measuring a plan and Inductor in turns
_STEPS_OF_A_BLOCK = 10
_SECONDS = 2.0  # for all rounds, after the first
PREPARING = threading.RLock()  # one thread at a time compiles and measures


class Choice(NamedTuple):
    """What runs a region, and why."""

    plan: str | None  # the folder; None: Inductor
    why: str
    plan_seconds: float | None = None  # of a step, where both were timed
    inductor_seconds: float | None = None


class Options(NamedTuple):
    """torch.compile(..., options={...}) as Millrace understands it."""

    budget: str | None = None  # exploration of each new plan; None: no measurements
    choose: str = "fastest"  # or "plan": without a comparison with Inductor

    @staticmethod
    def of(given: dict | None) -> Options:
        given = dict(given or {})
        if unknown := set(given) - set(Options._fields):
            raise ValueError(f"backend 'millrace' has no option {sorted(unknown)[0]!r}; it has "
                             f"{', '.join(Options._fields)}")
        plans.check_budget(given.get("budget"))
        if given.get("choose", "fastest") not in ("fastest", "plan"):
            raise ValueError(f"the option choose is 'fastest' or 'plan', not {given['choose']!r}")
        return Options(**given)


class Rest:
    """A piece that Inductor compiles at its first call, and again for other strides: the region before it has returned
    contiguous tensors since a plan runs it."""

    def __init__(self, module: fx.GraphModule):
        self._module = module
        self._compiled: dict[tuple, Callable] = {}

    def __call__(self, *tensors):
        strides = tuple([one.stride() for one in tensors])
        compiled = self._compiled.get(strides)
        if compiled is None:
            compiled = self._compile(strides, tensors)
        return compiled(*tensors)

    def _compile(self, strides: tuple, tensors: tuple[torch.Tensor, ...]) -> Callable:
        with PREPARING:
            if strides not in self._compiled:
                self._compiled[strides] = torch._inductor.compile(self._module, list(tensors))
            return self._compiled[strides]


class Region:
    """A piece that is a program. Chooses what runs it at its first call."""

    def __init__(self, name: str, program: Program, file: Path, module: fx.GraphModule, options: Options):
        self.name, self.program, self.file = name, program, file
        self.choice: Choice | None = None
        self.inductor = Rest(module)
        self.options = options
        self._call: operator.Call | None = None
        self._validity: tuple | None = None

    def __call__(self, *tensors):
        if self._validity != plans.validity():
            with PREPARING:
                if self._validity != plans.validity():
                    self._choose(tensors)
        if torch.autograd.profiler._is_profiler_enabled:
            with torch.profiler.record_function(f"millrace: {self.name}"):
                return self._run(tensors)
        return self._run(tensors)

    def _run(self, tensors: tuple[torch.Tensor, ...]):
        if self._call is None:
            return self.inductor(*tensors)
        random = operator.draw_random(tensors[0].device) if self.program.draws else None
        return operator.run_call(self._call, [one.contiguous() for one in tensors], [], random)

    def _choose(self, tensors: tuple[torch.Tensor, ...]) -> None:
        validity = plans.validity()
        self.choice = choose(self, tensors)
        self._call = None if self.choice.plan is None else call_of(self.choice.plan, tensors)
        self._validity = validity  # last: from now on other threads run the choice

    def find_plan(self, where: plans.Where) -> str:
        """The folder of the region's plan, which is made if there is none."""
        began = time.monotonic()
        path = plans.find(self.program.text, {}, "", where, self.program.name, budget=self.options.budget)
        if (took := time.monotonic() - began) > 0.2:
            say(f"{self.name}: a first plan in {took:.1f} s; millrace.torch.explore() finds faster ones")
        return path

def say(message: str) -> None:
    print(f"millrace: {message}", file=sys.stderr, flush=True)


def call_of(path: str, tensors: tuple[torch.Tensor, ...]) -> operator.Call:
    return operator.call_of(path, (1,) * len(tensors), tuple(tuple(one.shape) for one in tensors))


_choices: dict[tuple, Choice] = {}  # one for all equal regions


def forget_choices() -> None:
    """Lets new regions find their recorded choices again, for tests."""
    _choices.clear()


def choose(region: Region, tensors: tuple[torch.Tensor, ...]) -> Choice:
    device = tensors[0].device
    where = plans.Where.of(device.type, device.index)
    key = (region.program.text, where, region.options, plans.validity())
    if key not in _choices:
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):  # not the user's, as checkpoint's
            _choices[key] = _new_choice(region, where, tensors)
    return _choices[key]


def _new_choice(region: Region, where: plans.Where, tensors: tuple[torch.Tensor, ...]) -> Choice:
    try:
        path = region.find_plan(where)
    except MillraceError as error:
        say(f"{region.name} goes to Inductor: no plan: {str(error).strip().splitlines()[0]}")
        return Choice(None, f"no plan: {str(error).strip()}")
    if region.options.choose == "plan":
        return Choice(path, "chosen by options")
    return _recorded(path) or _compared(region, path, tensors)


def _record_of(path: str) -> Path:
    return Path(path).parent / f"{Path(path).name}-or-inductor-{torch.__version__}.json"


def _recorded(path: str) -> Choice | None:
    """The outcome of an earlier comparison."""
    try:
        return Choice(**json.loads(_record_of(path).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _compared(region: Region, path: str, tensors: tuple[torch.Tensor, ...]) -> Choice:
    call = call_of(path, tensors)
    draws = region.program.draws

    def by_plan(*given):
        random = operator.draw_random(given[0].device) if draws else None
        return operator.run_call(call, [one.contiguous() for one in given], [], random)

    try:
        ours, theirs = step_seconds([by_plan, region.inductor], tensors)
    except Exception as error:  # Inductor may fail where a plan does not
        return Choice(path, f"Inductor fails: {str(error).splitlines()[0] if str(error) else error!r}")
    kept = "the plan" if ours <= theirs else "Inductor's code"
    say(f"{region.name}: a step takes {ours * 1e3:.3g} ms by the plan and {theirs * 1e3:.3g} ms by Inductor; {kept} "
        "runs")
    choice = Choice(path if ours <= theirs else None, f"{kept} is faster", ours, theirs)
    plan_cache.write_whole(_record_of(path), json.dumps(choice._asdict()))
    return choice


def step_seconds(functions: list, tensors: tuple[torch.Tensor, ...]) -> list[float]:
    """Median times of forward and backward, measured in turns, on copies without history; the user's generator is
    left as it was."""
    device = tensors[0].device
    devices = [device] if device.type == "cuda" else []
    times: list[list[float]] = [[] for _ in functions]
    with torch.random.fork_rng(devices):
        for function in functions:  # compiles and warms up
            _seconds(function, tensors)
        end = time.monotonic() + _SECONDS
        for _ in range(_ROUNDS):
            for k, function in enumerate(functions):
                times[k].append(_seconds(function, tensors))
            if time.monotonic() > end:
                break
    return [statistics.median(one) for one in times]


def _seconds(function, tensors: tuple[torch.Tensor, ...]) -> float:
    """The seconds of a step, in a block of steps in which the host may run ahead of a GPU."""
    device = tensors[0].device
    given = [one.detach().requires_grad_(one.requires_grad) for one in tensors]
    steps = _STEPS_OF_A_BLOCK if device.type == "cuda" else 1
    _wait(device)
    began = time.perf_counter()
    for _ in range(steps):
        _step(function, given)
    _wait(device)
    return (time.perf_counter() - began) / steps


def _step(function, given: list[torch.Tensor]) -> None:
    wanted = [one for one in given if one.requires_grad]
    results = [one for one in function(*given) if one.requires_grad]
    if results and wanted:
        torch.autograd.grad(results, wanted, [torch.ones_like(one) for one in results], allow_unused=True)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
