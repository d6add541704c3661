"""Layers of any class that run plans: accelerate compiles their own forward with the importer, once for all layers of a
class. Test: tests/torch/imported_layer_test.py"""

from __future__ import annotations

import functools
import inspect

import torch
from torch import nn

from millrace.torch import operator, plans
from millrace.torch.backend import compile_graph

_RECOMPILATIONS = 64  # of a class: shapes, modes, kinds of masks, layers that differ
_FAILURES = (torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit)
_failed: dict[tuple, str] = {}  # why a class cannot be traced in a mode; each attempt would take long


@functools.cache
def imported_class(kind: type[nn.Module]) -> type[nn.Module]:
    """The subclass whose forward runs plans. It has the name of its base, by which others find layers, as FSDP's
    wrapping policies do."""
    return type(kind)(kind.__name__, (_Imported, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__,
                                                         "__qualname__": kind.__qualname__})


def is_imported(module: nn.Module) -> bool:
    return isinstance(module, _Imported)


class _Imported:
    """Comes before the layer's own class in the order of base classes."""

    def forward(self, *arguments, **named):
        own = super().forward
        if not operator.is_plain():  # as inside another torch.compile, which sees the layer's own code
            return own(*arguments, **named)
        mode = own.__func__, self.training, torch.is_grad_enabled()
        why = _failed.get(mode)
        if why is None:
            try:
                made = _compiled(own.__func__, own_class(self).__name__)(self, *arguments, **named)
                plans.forget_fall_back(self)
                return made
            except _FAILURES as error:
                why = f"its code cannot be compiled: {_first_line(error)}"
        made = own(*arguments, **named)  # may raise an error of the call, which says nothing about others
        _failed[mode] = why
        plans.fall_back(self, why)
        return made

    def __reduce_ex__(self, protocol):
        """Copies and unpickled layers are imported again: nothing finds their class by its name."""
        _, _, *rest = super().__reduce_ex__(protocol)
        return _restored, (own_class(self),), *rest


def own_class(module: nn.Module) -> type[nn.Module]:
    """The class that an imported layer had. FSDP makes subclasses of subclasses."""
    known = type(module).__mro__
    return known[known.index(_Imported) + 1]


def _restored(kind: type[nn.Module]) -> nn.Module:
    made = imported_class(kind)
    return made.__new__(made)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), repr(error))


@functools.cache
def _compiled(forward, name: str):
    """One for all layers of a class: those that differ only in their weights share what is compiled."""
    known = inspect.signature(torch.compile).parameters  # PyTorch 2.10 has neither
    limits = {name: value for name, value in (("recompile_limit", _RECOMPILATIONS), ("isolate_recompiles", True))
              if name in known}
    return torch.compile(forward, backend=functools.partial(compile_graph, layer=name), fullgraph=True, **limits)
