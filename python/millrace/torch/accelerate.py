"""Replaces layers of an existing model by layers that run plans."""

from __future__ import annotations

import sys
from collections import Counter
from typing import NamedTuple

from torch import nn

from millrace.torch.attention import MultiheadAttention
from millrace.torch.encoder_layer import TransformerEncoderLayer
from millrace.torch.imported_layer import imported_class, is_imported, own_class

_BERT = "transformers.models.bert.modeling_bert"
_Kinds = dict[type, type]


class Accelerated(NamedTuple):
    """What accelerate did, by name of the layer."""

    replaced: dict[str, str]  # the class that it has now
    left: dict[str, str]  # layers that could not be replaced, with the reason
    falls_back: dict[str, str]  # replaced layers that run PyTorch's own code as they are now, with the reason
    others: dict[str, int]  # classes of all other modules with parameters, and how many there are

    def __str__(self) -> str:
        lines = [f"replaced {name or 'the model'}: {kind}" for name, kind in self.replaced.items()
                 if name not in self.falls_back]
        lines += [f"replaced {name or 'the model'}: {self.replaced[name]}, but runs PyTorch's own code: {why}"
                  for name, why in self.falls_back.items()]
        lines += [f"left     {name or 'the model'}: {why}" for name, why in self.left.items()]
        if not lines:
            lines = ["the model has no layer that Millrace can replace"]
        if self.others:
            lines.append(f"PyTorch's: {', '.join(f'{count} {kind}' for kind, count in self.others.items())}")
        return "\n".join(lines)


def accelerate(model: nn.Module) -> Accelerated:
    """Replaces layers in place: torch.nn's TransformerEncoderLayer and MultiheadAttention and Hugging Face's BertLayer
    by Millrace's own, and every other numbered module with several matrix products, as model.layers.0, by one whose own
    code is imported, as torch.compile(backend="millrace") does. The modules and their parameters stay the same objects,
    so optimizers, checkpoints, hooks, DDP and FSDP2 keep working."""
    kinds: _Kinds = {nn.TransformerEncoderLayer: TransformerEncoderLayer, nn.MultiheadAttention: MultiheadAttention}
    if _BERT in sys.modules:
        from millrace.torch.hugging_face import BertLayer

        kinds[BertLayer.__base__] = BertLayer
    report = Accelerated({}, {}, {}, {})
    inside: list[str] = []  # prefixes of the names inside replaced layers
    for name, module in list(model.named_modules()):
        if any(name.startswith(prefix) for prefix in inside):
            continue
        if _replaced(name, module, kinds, report):
            inside.append(f"{name}." if name else "")
        elif isinstance(module, tuple(kinds)):
            report.left[name] = f"{type(module).__qualname__} is a subclass"
        elif any(True for _ in module.parameters(recurse=False)):
            report.others[type(module).__name__] = report.others.get(type(module).__name__, 0) + 1
    return report


def _replaced(name: str, module: nn.Module, kinds: _Kinds, report: Accelerated) -> bool:
    """Whether the module is one of Millrace's layers, originally or by replacement."""
    own = type(module) if type(module) in kinds.values() else kinds.get(type(module))
    if own is not None:
        module.__class__ = own
        why = module._why_never()
        if why is None or own is MultiheadAttention:
            report.replaced[name] = f"{own.__module__}.{own.__qualname__}"
            report.falls_back.update({} if why is None else {name: why})
            return True
        module.__class__ = imported_class(own.__base__)  # which covers adapters and decoders, too
    elif not is_imported(module):
        if not _is_layer(name, module):
            return False
        module.__class__ = imported_class(type(module))
    kind = own_class(module)
    report.replaced[name] = f"{kind.__module__}.{kind.__qualname__}, imported"
    return True


def _is_layer(name: str, module: nn.Module) -> bool:
    """A numbered module with several matrix products that has no equal layers inside, as a stage of several layers
    does."""
    if not name.split(".")[-1].isdigit() or type(module).forward is nn.Module.forward or _products(module) < 2:
        return False
    inner = Counter(type(one) for path, one in module.named_modules()
                    if path.split(".")[-1].isdigit() and _products(one) > 1)
    return all(count == 1 for count in inner.values())


def _products(module: nn.Module) -> int:
    """How many matrices multiply something."""
    return sum(parameter.dim() > 1 for one in module.modules() if not isinstance(one, nn.Embedding)
               for parameter in one.parameters(recurse=False))
