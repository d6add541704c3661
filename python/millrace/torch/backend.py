"""torch.compile(model, backend="millrace"): imports the model's graph as programs and runs their plans; Inductor
compiles the rest. Test: tests/torch/compile_backend_test.py"""

from __future__ import annotations

import hashlib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Callable, NamedTuple

import torch
from torch import fx

from millrace import plan_cache
from millrace.torch import module_names
from millrace.torch.aten_products import is_contraction
from millrace.torch.capture import Captured, capture
from millrace.torch.importer import Program, import_region
from millrace.torch.in_place import NotCaptured
from millrace.torch.partition import Partition, Piece, partition
from millrace.torch.regions import PREPARING, Options, Region, Rest, say
from millrace.torch.stitched import piece_module, stitch

NAME = "millrace"
_MOST_SHAPES = 8  # of one graph, that get plans


class Compiled(NamedTuple):
    """A graph as it was compiled, for explain."""

    regions: list[Region]
    rest: dict[str, str]  # operators that went to Inductor, with the reason
    whole: str | None = None  # why all of it went to Inductor


Listener = Callable[[Compiled], None]


class _Task(NamedTuple):
    """What all shapes of a graph share."""

    options: Options
    listener: Listener
    layer: str  # the layer's name if the graph is one layer; "" if it is a model


def compile_graph(graph: fx.GraphModule, inputs: list, *, options: dict | None = None, mode: str | None = None,
                  listener: Listener = lambda compiled: None, layer: str = "") -> Callable:
    """The backend. `inputs`: tensors, and sizes if shapes are dynamic; `mode`: what a user gave torch.compile for
    Inductor; `layer`: the name if the graph is one layer, which becomes one region."""
    if mode is not None:
        raise ValueError(f"backend 'millrace' has no mode {mode!r}: for a CUDA graph use millrace.torch.TrainingStep, "
                         'for faster plans options={"budget": "60s"}')
    task = _Task(Options.of(options), listener, layer)
    if any(not isinstance(x, torch.Tensor) or any(isinstance(n, torch.SymInt) for n in x.shape) for x in inputs):
        return _Shapes(graph, task)
    return _compile(graph, inputs, task)


def _compile(graph: fx.GraphModule, inputs: list, task: _Task) -> Callable:
    """For fixed shapes."""
    try:
        captured = capture(graph, inputs, torch._guards.detect_fake_mode(inputs))
    except NotCaptured as why:
        say(f"a graph goes to Inductor as a whole: {why}")
        task.listener(Compiled([], {}, str(why)))
        return torch._inductor.compile(graph, inputs)
    found = partition(captured.module.graph, task.layer)
    calls = [_call_of(piece, captured, task.options) for piece in found.pieces]
    compiled = Compiled([call for call in calls if isinstance(call, Region)], _rest(found))
    task.listener(compiled)
    if not compiled.regions and any(map(is_contraction, captured.module.graph.nodes)):
        say("no region of a graph is worth a plan; it goes to Inductor (millrace.torch.explain says why)")
    return _WithoutAutocast(stitch(captured.module, found.pieces, calls))


class _WithoutAutocast:
    """Calls a graph whose casts are explicit."""

    def __init__(self, module: fx.GraphModule):
        self._forward = module.forward

    def __call__(self, *tensors):
        with torch._C._DisableAutocast():
            return self._forward(*tensors)


class _Shapes:
    """A graph of dynamic shapes: each of the first few shapes gets plans of its own, all others Inductor's code for any
    shape."""

    def __init__(self, graph: fx.GraphModule, task: _Task):
        self._graph, self._task = graph, task
        self._known: dict[tuple, Callable] = {}
        self._any_shape: Callable | None = None

    def __call__(self, *inputs):
        key = tuple(tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in inputs)
        if key not in self._known:
            with PREPARING:
                if key not in self._known and len(self._known) < _MOST_SHAPES:
                    self._known[key] = _compile(self._graph, list(inputs), self._task)
        return self._known.get(key, self._by_inductor)(*inputs)

    def _by_inductor(self, *inputs):
        if self._any_shape is None:
            why = f"it has been called with more than {_MOST_SHAPES} shapes; pad its inputs to fewer"
            say(f"a graph goes to Inductor for new shapes: {why}")
            self._task.listener(Compiled([], {}, why))
            self._any_shape = torch.compile(self._graph, backend="inductor", dynamic=True)
        return self._any_shape(*inputs)


def _call_of(piece: Piece, captured: Captured, options: Options) -> Callable | None:
    if not piece.is_region():
        return None if piece.only_views() else Rest(piece_module(piece, captured.module))
    program = import_region(piece.nodes, piece.layer, captured.names, captured.model)
    return Region(piece.layer or "the rest of the model", program, _keep(program), piece_module(piece, captured.module),
                  options)


def _keep(program: Program) -> Path:
    """The file of the program, in the cache."""
    folder = plan_cache.private_directory(plan_cache.cache_directory() / "programs")
    file = folder / f"{program.name}-{hashlib.sha256(program.text.encode()).hexdigest()[:8]}.py"
    if not file.exists():
        plan_cache.write_whole(file, program.text)
    return file


def _rest(found: Partition) -> dict[str, str]:
    """The nodes that Inductor compiles, without views."""
    return {f"{getattr(node.target, '_opname', node.name)}{_place(node)}": found.reasons[node]
            for piece in found.pieces if not piece.is_region() and not piece.only_views() for node in piece.nodes
            if node.op == "call_function"}


def _place(node: fx.Node) -> str:
    path = module_names.module_path(node)
    return f" in {path}" if path else ""


def register() -> None:
    """Makes the name known to torch.compile. An installed package has an entry point, which does the same."""
    if not entry_points(group="torch_dynamo_backends", name=NAME):
        torch._dynamo.register_backend(compile_graph, name=NAME)
