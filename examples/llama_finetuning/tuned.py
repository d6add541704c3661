"""Hugging Face's Llama with the loss of its answers. The logits are never in memory whole."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from torch import Tensor, nn

import millrace.torch

SIZES = {  # without --weights: random weights
    "tiny": dict(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=128),
    "1b": dict(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,  # Llama 3.2's
               num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=131072,
               tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
}


def llama(size: str, weights: Path | None) -> transformers.LlamaForCausalLM:
    """`weights`: a folder that Hugging Face's save_pretrained, or its hub, wrote."""
    if weights is not None:
        return transformers.LlamaForCausalLM.from_pretrained(weights, dtype=torch.float32, local_files_only=True)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES[size], bos_token_id=None, eos_token_id=None))


class Tuned(nn.Module):
    """Returns the loss. With `rank`, the weights are frozen, and low-rank adapters of the attention are trained."""

    def __init__(self, model: transformers.LlamaForCausalLM, rank: int = 0):
        super().__init__()
        self.llama = model
        if rank:
            adapt(model, rank)

    def forward(self, ids: Tensor, labels: Tensor, places: Tensor | None = None,
                conversations: Tensor | None = None) -> Tensor:
        """All arguments are [batch, length]. `places`: of tokens in their conversation; the number of each token's
        conversation, which sees no other one; without it, each sequence is one conversation."""
        keep = None
        if conversations is not None:
            keep = (conversations[:, :, None] == conversations[:, None]).tril()[:, None]
        x = self.llama.model(input_ids=ids, position_ids=places, attention_mask=keep, use_cache=False)[0]
        return millrace.torch.linear_cross_entropy(x, self.llama.lm_head.weight, labels)


class Adapter(nn.Module):
    """A frozen projection, plus a product of two small matrices that is zero at first (LoRA)."""

    def __init__(self, base: nn.Linear, rank: int):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def adapt(model: nn.Module, rank: int, names: tuple[str, ...] = ("q_proj", "v_proj")) -> None:
    """Freezes the model, and gives adapters to its projections of these names."""
    model.requires_grad_(False)
    found = [(parent, name) for parent in model.modules() for name, _ in parent.named_children() if name in names]
    for parent, name in found:
        setattr(parent, name, Adapter(getattr(parent, name), rank))
