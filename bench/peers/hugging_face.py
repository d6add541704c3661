"""Hugging Face's BertLayer with the interface of torch_bert.py. It has three dropouts: none after the ReLU."""

from __future__ import annotations

from torch import nn

LAYER_NORM_EPSILON = 1e-5  # Millrace's and nn.LayerNorm's; BertConfig's own is 1e-12


class BertLayerOfHuggingFace(nn.Module):
    def __init__(self, sizes: dict[str, int], dropout: float):
        super().__init__()
        from transformers import BertConfig  # optional dependency
        from transformers.models.bert.modeling_bert import BertLayer

        config = BertConfig(hidden_size=sizes["I"], num_attention_heads=sizes["H"], intermediate_size=sizes["U"],
                            hidden_act="relu", hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
                            layer_norm_eps=LAYER_NORM_EPSILON)
        config._attn_implementation = "sdpa"
        self.layer = BertLayer(config)

    def forward(self, x):
        result = self.layer(x)
        return result[0] if isinstance(result, tuple) else result

    def roles(self) -> dict:
        """A parameter that this layer splits is a tuple."""
        layer, attention = self.layer, self.layer.attention
        projections = [getattr(attention.self, name) for name in ("query", "key", "value")]
        modules = {"out": attention.output.dense, "linear1": layer.intermediate.dense, "linear2": layer.output.dense,
                   "norm1": attention.output.LayerNorm, "norm2": layer.output.LayerNorm}
        roles = {f"{role}.{part}": getattr(module, part)
                 for role, module in modules.items() for part in ("weight", "bias")}
        return roles | {f"qkv.{part}": tuple(getattr(module, part) for module in projections)
                        for part in ("weight", "bias")}
