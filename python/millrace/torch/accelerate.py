"""Replaces layers of an existing model by layers that run plans."""

from __future__ import annotations

import sys
from typing import NamedTuple

from torch import nn

from millrace.torch.attention import MultiheadAttention
from millrace.torch.encoder_layer import TransformerEncoderLayer

_BERT = "transformers.models.bert.modeling_bert"


class Accelerated(NamedTuple):
    """The replaced layers by name, and those that could not be replaced, with the reason."""

    replaced: dict[str, str]
    left: dict[str, str]

    def __str__(self) -> str:
        lines = [f"replaced {name or 'the model'}: {kind}" for name, kind in self.replaced.items()]
        lines += [f"left     {name or 'the model'}: {why}" for name, why in self.left.items()]
        return "\n".join(lines) or "the model has no layer that Millrace can replace"


def accelerate(model: nn.Module) -> Accelerated:
    """Replaces torch.nn's TransformerEncoderLayer and MultiheadAttention and Hugging Face's BertLayer, in place. The
    modules and their parameters stay the same objects, so optimizers, checkpoints, hooks and DDP keep working.
    Subclasses are not replaced, because they may behave differently."""
    known: dict[type, type] = {nn.TransformerEncoderLayer: TransformerEncoderLayer,
                               nn.MultiheadAttention: MultiheadAttention}
    if _BERT in sys.modules:
        from millrace.torch.hugging_face import BertLayer

        known[BertLayer.__base__] = BertLayer
    report = Accelerated({}, {})
    inside: list[str] = []  # prefixes of the names inside replaced layers
    for name, module in model.named_modules():
        if any(name.startswith(prefix) for prefix in inside):
            continue
        kind = known.get(type(module))
        if kind is not None:
            module.__class__ = kind
            report.replaced[name] = f"{kind.__module__}.{kind.__qualname__}"
            inside.append(f"{name}." if name else "")
        elif isinstance(module, tuple(known)) and type(module) not in known.values():
            report.left[name] = f"{type(module).__qualname__} is a subclass"
    return report
