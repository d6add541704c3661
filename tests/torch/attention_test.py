"""Compares millrace.torch.MultiheadAttention with torch.nn's."""

from __future__ import annotations

import unittest
import warnings

import torch
from torch import nn

from support import TorchTest, accelerated


class AttentionTest(TorchTest):
    def check(self, inputs, result=lambda outcome: outcome[0], call=None, batch_first=True, **options):
        theirs = nn.MultiheadAttention(8, 2, batch_first=batch_first, dtype=torch.float64, **options)
        for parameter in theirs.parameters():
            nn.init.uniform_(parameter, -0.4, 0.4)
        ours, _ = accelerated(theirs)
        self.assert_same_step(ours, theirs, inputs, call, result=result)

    @staticmethod
    def drawn(*shape):
        return torch.randn(*shape, dtype=torch.float64)

    def test_self_attention_with_mean_weights(self):
        self.check([self.drawn(3, 5, 8)], call=lambda module, x: module(x, x, x),
                   result=lambda outcome: torch.cat([outcome[0].flatten(), outcome[1].flatten()]))

    def test_cross_attention_without_weights(self):
        padding = torch.zeros(3, 6, dtype=torch.bool)
        padding[1, 4:] = True
        self.check([self.drawn(5, 3, 8), self.drawn(6, 3, 12)], batch_first=False, kdim=12, vdim=12,
                   call=lambda module, x, y: module(x, y, y, key_padding_mask=padding, need_weights=False))

    def test_separate_inputs_with_all_weights(self):
        self.check([self.drawn(3, 5, 8), self.drawn(3, 6, 8), self.drawn(3, 6, 8)], bias=False,
                   call=lambda module, x, y, z: module(x, y, z, average_attn_weights=False),
                   result=lambda outcome: torch.cat([outcome[0].flatten(), outcome[1].flatten()]))

    def test_causal(self):
        mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
        self.check([self.drawn(3, 5, 8)], call=lambda module, x: module(x, x, x, attn_mask=mask, is_causal=True,
                                                                       need_weights=False))

    def test_added_keys_run_by_pytorch(self):
        theirs = nn.MultiheadAttention(8, 2, add_zero_attn=True)
        ours, _ = accelerated(theirs)
        x = torch.randn(5, 3, 8)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = ours(x, x, x)[0]
        self.assertIn("add_zero_attn", str(caught[0].message))
        self.assert_close(found, theirs(x, x, x)[0])


if __name__ == "__main__":
    unittest.main()
