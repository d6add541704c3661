"""Tests replacing the layers of existing models."""

from __future__ import annotations

import copy
import unittest

import torch
from torch import nn

import millrace.torch
from support import TorchTest, accelerated


class AccelerateTest(TorchTest):
    def test_torchs_encoder(self):
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        parameters = list(theirs.parameters())
        ours, report = accelerated(theirs)
        self.assertEqual(list(report.replaced), ["layers.0", "layers.1"])
        self.assertEqual(report.left, {})
        self.assertIn("replaced layers.0: millrace.torch.encoder_layer.TransformerEncoderLayer", str(report))
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        self.assert_same_step(ours, theirs, [torch.randn(3, 5, 8)],
                              lambda module, x: module(x, mask=mask, is_causal=True), tolerance=1e-4)
        millrace.torch.accelerate(theirs)
        self.assertTrue(all(a is b for a, b in zip(parameters, theirs.parameters())), "the same parameters")

    def test_attention_of_a_decoder(self):
        theirs = nn.TransformerDecoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        ours, report = accelerated(theirs)
        self.assertEqual(list(report.replaced), ["self_attn", "multihead_attn"])
        self.assert_same_step(ours, theirs, [torch.randn(3, 5, 8), torch.randn(3, 6, 8)], tolerance=1e-4)

    def test_subclasses_are_left(self):
        class Other(nn.TransformerEncoderLayer):
            pass

        _, report = accelerated(nn.Sequential(Other(8, 2)))
        self.assertEqual(report.left, {"0": "AccelerateTest.test_subclasses_are_left.<locals>.Other is a subclass"})
        self.assertEqual(str(accelerated(nn.Linear(3, 4))[1]), "the model has no layer that Millrace can replace")


class BertTest(TorchTest):
    def setUp(self):
        super().setUp()
        try:
            from transformers import BertConfig, BertModel
        except ImportError as error:
            self.skipTest(f"Hugging Face's transformers are not here: {error}")
        self.config = BertConfig(vocab_size=50, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                                 intermediate_size=12, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                                 max_position_embeddings=16)
        self.model = BertModel
        self.words = torch.randint(0, 50, (3, 5))
        self.seen = torch.ones(3, 5, dtype=torch.long)
        self.seen[1, 3:] = 0

    def test_bert(self):
        for implementation in ("sdpa", "eager"):
            self.config._attn_implementation = implementation
            theirs = self.model(self.config).double()
            ours, report = accelerated(theirs)
            self.assertEqual(list(report.replaced), ["encoder.layer.0", "encoder.layer.1"])
            for seen in (None, self.seen):
                self.assert_same_step(ours, theirs, [], lambda module: module(self.words, attention_mask=seen),
                                      tolerance=1e-9, result=lambda outcome: outcome.last_hidden_state)

    def test_state_dicts_of_bert_are_interchangeable(self):
        theirs = self.model(self.config)
        ours, _ = accelerated(theirs)
        self.assertEqual(list(ours.state_dict()), list(theirs.state_dict()))
        copy.deepcopy(theirs).load_state_dict(ours.state_dict(), strict=True)


if __name__ == "__main__":
    unittest.main()
