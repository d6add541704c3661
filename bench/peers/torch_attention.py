"""Attention alone in PyTorch on a GPU: each backend replayed from a CUDA graph, and the definition in float64."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from peers.attention_cases import Case
from peers.torch_contestant import DTYPES, seconds_of_replay

BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention": SDPBackend.FLASH_ATTENTION,
            "memory-efficient": SDPBackend.EFFICIENT_ATTENTION}
FLEX = "FlexAttention"
ANGLES = ("cos", "sin")  # have no gradient


def visible_mask(case: Case) -> torch.Tensor | None:
    """Which keys a query sees, [queries, keys] for a window, [batch, keys] for padding."""
    if case.window:
        distance = torch.arange(case.queries, device="cuda")[:, None] - torch.arange(case.key_count, device="cuda")
        return (distance >= 0) & (distance < case.window)
    if case.padding:
        lengths = case.key_count - 7 * torch.arange(case.batch, device="cuda")
        return torch.arange(case.key_count, device="cuda") < lengths[:, None]
    return None


def draw(case: Case, seed: int = 1) -> dict[str, torch.Tensor]:
    """Inputs and the result's gradient with the shapes and names of the program."""
    generator = torch.Generator("cuda").manual_seed(seed)
    b, g, r, p = case.batch, case.groups, case.heads_per_group, case.columns
    shapes = {"q": (b, case.queries, g, r, p), "k": (b, case.key_count, g, p), "v": (b, case.key_count, g, p),
              "d_result": (b, case.queries, g, r, p)}
    if case.bias:
        shapes["bias"] = (g, r, case.queries, case.key_count)
    made = {name: torch.randn(shape, device="cuda", generator=generator) for name, shape in shapes.items()}
    if case.rotary:
        frequencies = 500000.0 ** (-torch.arange(0, p, 2, device="cuda") / p)  # Llama 3's
        angles = torch.outer(torch.arange(case.queries, device="cuda"), frequencies).repeat(1, 2)
        made |= {"cos": angles.cos(), "sin": angles.sin()}
    return {name: tensor.to(DTYPES[case.dtype]) for name, tensor in made.items()}


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The rotation of x[..., rows, columns]: the halves of its columns are swapped."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def definition(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The result and all gradients in float64, a head at a time, without dropout."""
    given = {name: tensor.double() for name, tensor in tensors.items()}
    made = {name: torch.zeros_like(given[name.removeprefix("d_")])
            for name in ("d_q", "d_k", "d_v", *(["d_bias"] if case.bias else []))}
    made["result"] = torch.zeros_like(given["d_result"])
    mask = visible_mask(case)
    causal = torch.ones(case.queries, case.key_count, dtype=torch.bool, device="cuda").tril() if case.causal else None
    for b in range(case.batch):
        for g in range(case.groups):
            for r in range(case.heads_per_group):
                leaves = [given["q"][b, :, g, r], given["k"][b, :, g], given["v"][b, :, g]]
                leaves += [given["bias"][g, r]] if case.bias else []
                leaves = [leaf.detach().requires_grad_() for leaf in leaves]
                angles = [given[name] for name in ANGLES] if case.rotary else []
                q, k = (rotated(leaf, *angles) if angles else leaf for leaf in leaves[:2])
                scores = q @ k.T / math.sqrt(case.columns) + (leaves[3] if case.bias else 0)
                if case.soft_cap:
                    scores = case.soft_cap * torch.tanh(scores / case.soft_cap)
                seen = mask[b] if case.padding else mask
                seen = causal if seen is None else seen
                if seen is not None:
                    scores = scores.masked_fill(~seen, -math.inf)
                result = torch.softmax(scores, -1) @ leaves[2]
                gradients = torch.autograd.grad(result, leaves, given["d_result"][b, :, g, r])
                made["result"][b, :, g, r] = result.detach()
                made["d_q"][b, :, g, r] = gradients[0]
                made["d_k"][b, :, g] += gradients[1]
                made["d_v"][b, :, g] += gradients[2]
                if case.bias:
                    made["d_bias"][g, r] += gradients[3]
    return made


class TorchAttention:
    """One backend of one case."""

    def __init__(self, case: Case, backend: str, tensors: dict[str, torch.Tensor]):
        self.case, self.backend = case, backend
        self.leaves = {name: tensor.detach().clone().requires_grad_()
                       for name, tensor in tensors.items() if name not in ("d_result", *ANGLES)}
        self.angles = [tensors[name] for name in ANGLES] if case.rotary else []
        self.rotated = torch.compile(rotated, dynamic=False)  # one kernel for each operand and pass
        self.gradient = tensors["d_result"]
        self.mask = visible_mask(case)
        self.call = self._flex() if backend == FLEX else self._sdpa

    def _heads_first(self) -> list[torch.Tensor]:
        q = self.leaves["q"].flatten(2, 3).transpose(1, 2)
        k = self.leaves["k"].transpose(1, 2)
        if self.angles:
            q, k = self.rotated(q, *self.angles), self.rotated(k, *self.angles)
        return [q, k, self.leaves["v"].transpose(1, 2)]

    def _sdpa(self, dropout: float) -> torch.Tensor:
        case = self.case
        if case.soft_cap:
            raise ValueError("scaled_dot_product_attention has no soft-cap")
        bias = self.leaves["bias"].flatten(0, 1)[None] if case.bias else None
        if self.mask is not None:
            bias = self.mask[:, None, None, :] if case.padding else self.mask
        with sdpa_kernel(BACKENDS[self.backend]):
            made = F.scaled_dot_product_attention(*self._heads_first(), attn_mask=bias, dropout_p=dropout,
                                                  is_causal=case.causal, enable_gqa=case.heads_per_group > 1)
        return made.transpose(1, 2).unflatten(2, (case.groups, case.heads_per_group))

    def _flex(self):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        case = self.case
        if case.dropout or case.bias:
            raise ValueError("FlexAttention has no dropout, and a bias only without a fast gradient")
        mask = self.mask
        seen = None
        if case.window:
            def seen(b, h, q, k):
                return (q >= k) & (q - k < case.window)
        elif case.causal:
            def seen(b, h, q, k):
                return q >= k
        elif case.padding:
            def seen(b, h, q, k):
                return mask[b, k]
        capped = None
        if case.soft_cap:
            def capped(score, b, h, q, k):
                return case.soft_cap * torch.tanh(score / case.soft_cap)
        block = None if seen is None else create_block_mask(
            seen, case.batch if case.padding else None, None, case.queries, case.key_count, device="cuda")
        compiled = torch.compile(flex_attention, dynamic=False)

        def call(dropout: float) -> torch.Tensor:
            made = compiled(*self._heads_first(), score_mod=capped, block_mask=block, enable_gqa=case.heads_per_group > 1)
            return made.transpose(1, 2).unflatten(2, (case.groups, case.heads_per_group))

        return call

    def results(self) -> dict[str, torch.Tensor]:
        result = self.call(0.0)
        gradients = torch.autograd.grad(result, list(self.leaves.values()), self.gradient)
        return {"result": result.detach(), **{f"d_{name}": gradient for name, gradient in zip(self.leaves, gradients)}}

    def times(self) -> tuple[float, float]:
        """Seconds of forward and of a step, replayed."""
        def forward():
            return self.call(self.case.dropout)

        def step():
            return torch.autograd.grad(forward(), list(self.leaves.values()), self.gradient)

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # as graph capture requires
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        taken = []
        for work in (forward, step):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                work()
            taken.append(seconds_of_replay(graph))
        return taken[0], taken[1]
