"""Compiles models that nobody planned for: tied weights, batch norms, a recurrent loop, an attention with a bias of its
own, operators in place, results that are nested dictionaries. Steps of training, and evaluation between them, are
eager's: losses, gradients, weights and buffers."""

from __future__ import annotations

import copy
import math
import unittest

import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree

import millrace.torch
from support import TorchTest

WIDTH, CLASSES = 8, 5
STEPS = 3


class TiedGatedMlp(nn.Module):
    """The table of embeddings is also the projection to the classes, and both blocks share a gate."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(CLASSES, WIDTH)
        self.gate, self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)
        self.second = nn.Linear(WIDTH, 12)
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        x = self.table(ids)
        x = x + self.down(functional.silu(self.gate(x)) * self.up(x))
        x = x + self.down(torch.sigmoid(self.gate(x)) * self.second(x))
        return self.head(x)


class Convolutions(nn.Module):
    """Batch norms count batches and keep running statistics; a residual is added in place."""

    def __init__(self):
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.second, self.norm2 = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6, momentum=0.3)
        self.activation = nn.ReLU(inplace=True)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        x = self.activation(self.norm1(self.first(x)))
        y = self.norm2(self.second(x))
        y += x
        return self.head(functional.max_pool2d(self.activation(y), 2).mean((2, 3)))


class Recurrent(nn.Module):
    """A cell in the manner of an LSTM, called in a loop."""

    def __init__(self):
        super().__init__()
        self.of_input, self.of_state = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], WIDTH)
        for t in range(x.shape[1]):
            i, f, g, o = (self.of_input(x[:, t]) + self.of_state(h)).chunk(4, -1)
            c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


class BiasedAttention(nn.Module):
    """A learned bias for each distance, ALiBi's slopes and a causal mask, written out."""

    def __init__(self, heads: int = 2, length: int = 16):
        super().__init__()
        self.heads, self.length = heads, length
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.distances = nn.Parameter(torch.randn(2 * length - 1, heads) * 0.1)
        self.register_buffer("slopes", torch.tensor([2.0 ** -(k + 1) for k in range(heads)]), persistent=False)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        place = torch.arange(length, device=x.device)
        distance = place[None, :] - place[:, None]
        bias = self.distances[distance + self.length - 1].permute(2, 0, 1)
        bias = bias + self.slopes[:, None, None] * distance
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias
        scores = scores.masked_fill(distance > 0, float("-inf"))
        mixed = scores.softmax(-1) @ v
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class BiasedTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(BiasedAttention() for _ in range(2))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 12), nn.ReLU(inplace=True), nn.Linear(12, WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        y = self.body(x)
        y *= 0.5
        y.add_(x)
        y[:, 0] = 0.0
        return self.head(functional.relu(y, inplace=True))


class Nested(nn.Module):
    """Returns more than tensors."""

    def __init__(self):
        super().__init__()
        self.inner, self.head, self.side = nn.Linear(WIDTH, 12), nn.Linear(12, CLASSES), nn.Linear(12, 3)

    def forward(self, x):
        hidden = functional.gelu(self.inner(x))
        return {"logits": self.head(hidden), "name": "nested", "none": None, "given": x,
                "aside": {"list": [self.side(hidden), 3, hidden.shape], "kept": (hidden.detach(), 0.5, True)}}


MODELS = {
    TiedGatedMlp: lambda: torch.randint(0, CLASSES, (4, 3)),
    Convolutions: lambda: torch.randn(4, 3, 6, 6),
    Recurrent: lambda: torch.randn(4, 3, WIDTH),
    BiasedTransformer: lambda: torch.randn(4, 3, WIDTH),
    InPlace: lambda: torch.randn(4, WIDTH),
    Nested: lambda: torch.randn(4, WIDTH),
}


def loss_of(made) -> torch.Tensor:
    if isinstance(made, dict):
        return loss_of(made["logits"]) + made["aside"]["list"][0].square().mean()
    return functional.cross_entropy(made.flatten(0, -2), torch.arange(made.flatten(0, -2).shape[0]) % CLASSES)


class OtherModelsTest(TorchTest):
    def check(self, kind: type[nn.Module]) -> None:
        torch.manual_seed(0)
        model = kind()
        reference = copy.deepcopy(model)
        graphs = []
        torch._dynamo.reset()
        run = torch.compile(model, fullgraph=True, backend=lambda graph, inputs: millrace.torch.backend.compile_graph(
            graph, inputs, options={"choose": "plan"}, listener=graphs.append))
        optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, reference)]
        for _ in range(STEPS):
            x = MODELS[kind]()
            losses = [loss_of(one(x)) for one in (run, reference)]
            torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
            for loss in losses:
                loss.backward()
            self.compare(model, reference, lambda one: dict(one.named_buffers()), 1e-4)
            self.compare(model, reference, lambda one: {name: parameter.grad
                                                        for name, parameter in one.named_parameters()}, 1e-4)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            model.eval()
            reference.eval()
            with torch.no_grad():
                self.compare_results(run(x), reference(x))
            model.train()
            reference.train()
        self.compare(model, reference, lambda one: one.state_dict(), 1e-3)
        self.assertEqual([graph.whole for graph in graphs], [None] * len(graphs))
        self.assertTrue(all(graph.regions for graph in graphs))

    def compare_results(self, found, expected) -> None:
        (found, of_found), (expected, of_expected) = map(_pytree.tree_flatten, (found, expected))
        self.assertEqual(of_found, of_expected)
        for one, other in zip(found, expected):
            if isinstance(other, torch.Tensor):
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
            else:
                self.assertEqual(one, other)

    def compare(self, model: nn.Module, reference: nn.Module, named, tolerance: float) -> None:
        found, expected = named(model), named(reference)
        self.assertEqual(list(found), list(expected))
        scale = max([one.abs().max().item() for one in expected.values()], default=1)
        for name, one in expected.items():
            torch.testing.assert_close(found[name], one, rtol=tolerance, atol=tolerance * scale,
                                       msg=lambda text, name=name: f"{name}: {text}")


def _add(kind: type[nn.Module]) -> None:
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__)
    setattr(OtherModelsTest, f"test{name}", lambda self: self.check(kind))


for _kind in MODELS:
    _add(_kind)


if __name__ == "__main__":
    unittest.main()
