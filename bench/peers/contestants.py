"""The contestants on a GPU, fastest first: the last ones are skipped when time runs out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Contestant:
    """A layer of torch_contestant.py or jax_contestant.py. `note`: how its computation differs from the others."""

    name: str
    layer: str
    attention: str | None = None
    compiled: bool = False
    framework: str = "torch"
    note: str = ""

    def specification(self, **case) -> dict:
        """The argument of worker.py."""
        return {"name": self.name, "framework": self.framework, "layer": self.layer, "attention": self.attention,
                "compiled": self.compiled, **case}


MILLRACE_IN_TORCH = Contestant("millrace.torch", "millrace", note="Millrace's plan, called like the others")
REFERENCE = Contestant("reference", "plain")

_SHARED = [
    Contestant("torch.compile, SDPA cuDNN", "sdpa", "cudnn", compiled=True),
    Contestant("torch, SDPA cuDNN", "sdpa", "cudnn"),
    Contestant("torch.compile, materialised", "plain", compiled=True),
    Contestant("torch, materialised", "plain"),
]
_FLASH = Contestant("torch, SDPA flash", "sdpa", "flash")
_JAX = [
    Contestant("JAX, materialised", "plain", "materialised", framework="jax"),
    Contestant("JAX, cuDNN attention", "plain", "cudnn", framework="jax", note="no dropout of the attention weights"),
]

CONTESTANTS = {
    "bert": [
        MILLRACE_IN_TORCH,
        *_SHARED,
        Contestant("torch, nn.TransformerEncoderLayer", "library"),
        Contestant("torch.compile, Hugging Face BertLayer", "hugging_face", compiled=True,
                   note="three dropouts: none after the ReLU"),
        _FLASH,
        *_JAX,
    ],
    "mha": [MILLRACE_IN_TORCH, *_SHARED, Contestant("torch, nn.MultiheadAttention", "library"), _FLASH, *_JAX],
}


def chosen(model: str, wanted: list[str] | None) -> list[Contestant]:
    """Contestants whose names contain one of these texts; all by default."""
    everyone = CONTESTANTS[model]
    return [one for one in everyone if wanted is None or any(text.lower() in one.name.lower() for text in wanted)]
