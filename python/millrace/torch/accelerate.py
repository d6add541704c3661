"""Replaces layers of an existing model by layers that run plans."""

from __future__ import annotations

import sys
from typing import NamedTuple

from torch import nn

from millrace.torch.attention import MultiheadAttention
from millrace.torch.encoder_layer import TransformerEncoderLayer

_BERT = "transformers.models.bert.modeling_bert"


class Accelerated(NamedTuple):
    """What accelerate did, by name of the layer."""

    replaced: dict[str, str]  # the class that it is now
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
    """Replaces torch.nn's TransformerEncoderLayer and MultiheadAttention and Hugging Face's BertLayer, in place. The
    modules and their parameters stay the same objects, so optimizers, checkpoints, hooks and DDP keep working.
    Subclasses are not replaced, because they may behave differently."""
    known: dict[type, type] = {nn.TransformerEncoderLayer: TransformerEncoderLayer,
                               nn.MultiheadAttention: MultiheadAttention}
    if _BERT in sys.modules:
        from millrace.torch.hugging_face import BertLayer

        known[BertLayer.__base__] = BertLayer
    report = Accelerated({}, {}, {}, {})
    inside: list[str] = []  # prefixes of the names inside replaced layers
    for name, module in model.named_modules():
        if any(name.startswith(prefix) for prefix in inside):
            continue
        kind = known.get(type(module))
        if kind is not None or type(module) in known.values():
            _replace(name, module, kind, report)
            inside.append(f"{name}." if name else "")
        elif isinstance(module, tuple(known)):
            report.left[name] = f"{type(module).__qualname__} is a subclass"
        elif any(True for _ in module.parameters(recurse=False)):
            report.others[type(module).__name__] = report.others.get(type(module).__name__, 0) + 1
    return report


def _replace(name: str, module: nn.Module, kind: type | None, report: Accelerated) -> None:
    """`kind`: the class that it becomes; None if it is one of Millrace's already."""
    if kind is not None:
        module.__class__ = kind
    report.replaced[name] = f"{type(module).__module__}.{type(module).__qualname__}"
    if why := module._why_never():
        report.falls_back[name] = why
