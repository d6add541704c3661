"""Shapes of attention alone: what bench/attention.py times, as programs of our language and as masks of PyTorch's."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    """Queries [batch, queries, groups, heads_per_group, columns]; keys and values [batch, keys, groups, columns]."""

    name: str
    batch: int
    groups: int
    queries: int
    columns: int
    heads_per_group: int = 1
    keys: int = 0  # 0: as many as queries
    dtype: str = "bfloat16"
    causal: bool = False
    dropout: float = 0.0
    window: int = 0  # a query sees this many keys, up to its own
    bias: bool = False  # added to the scores, with a gradient
    padding: bool = False  # a boolean for each key
    soft_cap: float = 0.0  # c · tanh(score / c)
    rotary: bool = False  # queries and keys are rotated first: the halves of their columns are swapped

    @property
    def key_count(self) -> int:
        return self.keys or self.queries

    @property
    def heads(self) -> int:
        return self.groups * self.heads_per_group

    def seen_share(self) -> float:
        """The share of the scores that is not hidden by a causal mask or window."""
        if self.window:
            return min(1.0, self.window / self.key_count)
        return 0.5 if self.causal else 1.0

    def forward_flop(self) -> float:
        return 4.0 * self.batch * self.heads * self.queries * self.key_count * self.columns * self.seen_share()

    def step_flop(self) -> float:
        """Two products in forward and five in backward."""
        return 3.5 * self.forward_flop()


CASES = [
    Case("BERT, B=8 L=512", 8, 16, 512, 64, dtype="float16", dropout=0.1),
    Case("BERT, B=96 L=128", 96, 16, 128, 64, dtype="float16", dropout=0.1),
    Case("GPT-2, B=8 L=1024, causal", 8, 12, 1024, 64, dtype="float16", causal=True, dropout=0.1),
    Case("Llama, 32 heads on 8, L=2048 d=128, causal", 1, 8, 2048, 128, heads_per_group=4, causal=True),
    Case("B=2 H=16 L=4096 d=64, causal", 2, 16, 4096, 64, causal=True),
    Case("B=2 H=16 L=4096 d=128, causal", 2, 16, 4096, 128, causal=True),
    Case("B=1 H=8 L=16384 d=128, causal", 1, 8, 16384, 128, causal=True),
    Case("window of 1024, L=8192 d=128, 8 heads on 2", 1, 2, 8192, 128, heads_per_group=4, window=1024),
    Case("T5 bias with gradient, B=8 L=512", 8, 16, 512, 64, dropout=0.1, bias=True),
    Case("cross, 512 queries, 1500 keys, padding mask", 8, 16, 512, 64, keys=1500, padding=True),
    Case("Gemma, 8 heads on 4, L=4096 d=128, soft-cap of 50, causal", 1, 4, 4096, 128, heads_per_group=2, causal=True,
         soft_cap=50.0),
    Case("Llama with rotary embedding, 32 heads on 8, L=2048 d=128, causal", 1, 8, 2048, 128, heads_per_group=4,
         causal=True, rotary=True),
    Case("rotary embedding, B=32 H=16 L=128 d=64, causal", 32, 16, 128, 64, causal=True, rotary=True),
]


def rotated(name: str, axes: str) -> str:
    """One operand, rotated; `axes`: of its angles, between the rows and the columns."""
    angles = f"[:, {axes}]"
    swapped = f"np.concatenate([-{name}[..., P // 2:], {name}[..., :P // 2]], axis=-1)"
    return f"{name} * cos{angles} + {swapped} * sin{angles}"


def program_text(case: Case, dropout: float) -> str:
    """The attention as a program, with the given dropout."""
    t = case.dtype
    arguments = [f"q: {t}[B, J, G, R, P]", f"k: {t}[B, K, G, P]", f"v: {t}[B, K, G, P]"]
    lines = []
    if case.rotary:
        arguments += [f"cos: fixed.{t}[J, P]", f"sin: fixed.{t}[J, P]"]
        lines += [f"    q_rotated = {rotated('q', 'None, None')}", f"    k_rotated = {rotated('k', 'None')}"]
    q, k = ("q_rotated", "k_rotated") if case.rotary else ("q", "k")
    lines.append(f'    scores = np.einsum("bjgrp,bkgp->bgrjk", {q}, {k}) / np.sqrt(P)')
    if case.soft_cap:
        lines.append(f"    scores = {case.soft_cap} * np.tanh(scores / {case.soft_cap})")
    if case.bias:
        arguments.append(f"bias: {t}[G, R, J, K]")
        lines.append("    scores = scores + bias")
    if case.window:
        lines.append("    distance = np.arange(J)[:, None] - np.arange(K)[None, :]")
        lines.append(f"    visible = np.logical_and(0 <= distance, distance < {case.window})")
        lines.append("    scores = np.where(visible, scores, -np.inf)")
    if case.padding:
        arguments.append("visible: bool_[B, K]")
        lines.append("    scores = np.where(visible[:, None, None, None, :], scores, -30000.0)")
    lines.append("    weights = softmax(causal_mask(scores))" if case.causal else "    weights = softmax(scores)")
    if dropout:
        lines.append(f"    weights = dropout(weights, p={dropout})")
    lines.append('    return np.einsum("bgrjk,bkgp->bjgrp", weights, v)')
    return "\n".join([
        f'"""{case.name}."""', "", "import numpy as np",
        f"from millrace.numpy import bool_, causal_mask, dropout, fixed, {t}, softmax", "",
        f"B = {case.batch}", f"J = {case.queries}", f"K = {case.key_count}", f"G = {case.groups}",
        f"R = {case.heads_per_group}", f"P = {case.columns}", "", "",
        f"def attention({', '.join(arguments)}):", *lines, ""])
