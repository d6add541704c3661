"""BERT for pretraining, in plain PyTorch. Its layers become regions of torch.compile(backend="millrace")."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

import millrace.torch


class Config(NamedTuple):
    width: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    positions: int
    dropout: float = 0.1


SIZES = {"tiny": Config(32, 2, 2, 64, 200, 64), "base": Config(768, 12, 12, 3072, 30522, 512),
         "large": Config(1024, 24, 16, 4096, 30522, 512)}


class Layer(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.heads, self.p = config.heads, config.dropout
        self.query, self.key, self.value, self.out = (nn.Linear(config.width, config.width) for _ in range(4))
        self.up, self.down = nn.Linear(config.width, config.inner), nn.Linear(config.inner, config.width)
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """`x`: [batch, length, width]; `keep`: [batch, 1, length or 1, length], the tokens that a token sees."""
        query, key, value = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for y in (self.query(x), self.key(x), self.value(x)))
        p = self.p if self.training else 0.0
        y = functional.scaled_dot_product_attention(query, key, value, keep, p).transpose(1, 2).flatten(2)
        x = self.norm1(x + functional.dropout(self.out(y), p))
        y = self.down(functional.gelu(self.up(x)))
        return self.norm2(x + functional.dropout(y, p))


class Bert(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.positions, config.width)
        self.segments = nn.Embedding(2, config.width)
        self.norm, self.dropout = nn.LayerNorm(config.width), nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.transform, self.transform_norm = nn.Linear(config.width, config.width), nn.LayerNorm(config.width)
        self.word_bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.pooler, self.next = nn.Linear(config.width, config.width), nn.Linear(config.width, 2)
        self.apply(_initialize)

    def forward(self, ids: Tensor, segments: Tensor, places: Tensor, pairs: Tensor, positions: Tensor, labels: Tensor,
                starts: Tensor, is_next: Tensor) -> Tensor:
        """The sum of both tasks' losses. `places`: of tokens in their pair of texts; `pairs`: boolean, where tokens are,
        or, for several pairs in a sequence, the number of each token's pair; `positions`, `labels`: of the masked
        tokens, [batch, predictions]; `starts`, `is_next`: of the pairs, [batch, pairs]."""
        keep = pairs[:, None, None, :] if pairs.dtype == torch.bool else (pairs[:, :, None] == pairs[:, None])[:, None]
        x = self.dropout(self.norm(self.words(ids) + self.places(places) + self.segments(segments)))
        for layer in self.layers:
            x = layer(x, keep)
        masked = self.transform_norm(functional.gelu(self.transform(_rows(x, positions))))
        words = millrace.torch.linear_cross_entropy(masked, self.words.weight, labels, self.word_bias)
        pooled = torch.tanh(self.pooler(_rows(x, starts)))
        return words + functional.cross_entropy(self.next(pooled).float().flatten(0, 1), is_next.flatten())


def _rows(x: Tensor, positions: Tensor) -> Tensor:
    return x.gather(1, positions[:, :, None].expand(-1, -1, x.shape[-1]))


def _initialize(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
