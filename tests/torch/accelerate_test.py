"""Tests replacing the layers of existing models."""

from __future__ import annotations

import copy
import unittest
import warnings

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

    def test_subclasses_are_left_or_imported(self):
        class Other(nn.TransformerEncoderLayer):
            pass

        name = "AccelerateTest.test_subclasses_are_left_or_imported.<locals>.Other"
        _, report = accelerated(nn.ModuleDict({"layer": Other(8, 2)}))
        self.assertEqual(report.left, {"layer": f"{name} is a subclass"})
        _, report = accelerated(nn.Sequential(Other(8, 2)))
        self.assertEqual(report.replaced, {"0": f"accelerate_test.{name}, imported"})
        self.assertEqual(str(accelerated(nn.Linear(3, 4))[1]),
                         "the model has no layer that Millrace can replace\nPyTorch's: 1 Linear")

    def test_the_report_says_what_falls_back_and_what_is_left(self):
        class Adapted(nn.Linear):
            pass

        encoder = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
        encoder.linear1 = Adapted(8, 12)
        attention = nn.MultiheadAttention(8, 2, add_zero_attn=True)
        model = nn.Sequential(nn.Embedding(9, 8), encoder, attention, nn.Linear(8, 2), nn.Linear(2, 2))
        report = millrace.torch.accelerate(model)
        self.assertEqual(list(report.falls_back), ["2"])
        self.assertEqual(report.others, {"Embedding": 1, "Linear": 2})
        self.assertIn("replaced 1: torch.nn.modules.transformer.TransformerEncoderLayer, imported", str(report))
        self.assertIn("replaced 2: millrace.torch.attention.MultiheadAttention, but runs PyTorch's own code",
                      str(report))
        self.assertIn("PyTorch's: 1 Embedding, 2 Linear", str(report))
        self.assertEqual(millrace.torch.accelerate(model), report, "the same when asked again")

    def test_budgets_are_checked_at_once(self):
        for wrong in ("banana", "5 parsecs", "-3s", "", 60, "\uff11s", "9" * 400 + "s", "5s\n"):
            with self.assertRaisesRegex(ValueError, "'90s', '5m' or '1h'"):
                millrace.torch.set_budget(wrong)
        with self.assertRaisesRegex(ValueError, "banana"), millrace.torch.explore("banana"):
            pass
        for right in ("90s", "1.5m", "1h", "2min", "60", None):
            millrace.torch.set_budget(right)


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

    def test_hidden_states_do_not_end_acceleration(self):
        theirs = self.model(self.config).double().eval()
        ours, _ = accelerated(theirs)
        layer = ours.encoder.layer[0]
        for options in ({"output_hidden_states": True}, {}, {"output_hidden_states": True}):
            found, expected = ours(self.words, **options), theirs(self.words, **options)
            self.assert_close(found.last_hidden_state, expected.last_hidden_state, tolerance=1e-9)
            for one, other in zip(found.hidden_states or (), expected.hidden_states or (), strict=True):
                self.assert_close(one, other, tolerance=1e-9)
            self.assertIsNone(millrace.torch.plan_of(layer).why_not)

    def test_attention_weights_come_from_transformers(self):
        self.config._attn_implementation = "eager"
        theirs = self.model(self.config).double().eval()
        ours, _ = accelerated(theirs)
        warnings.filterwarnings("ignore", message="millrace:.*")
        found, expected = (model(self.words, output_attentions=True).attentions for model in (ours, theirs))
        self.assertEqual(len(found), len(expected))
        for one, other in zip(found, expected):
            self.assert_close(one, other, tolerance=1e-9)
        self.assertIn("attention weights", millrace.torch.plan_of(ours.encoder.layer[0]).why_not)
        ours(self.words)
        self.assertIsNone(millrace.torch.plan_of(ours.encoder.layer[0]).why_not)

    def test_decoders_are_imported(self):
        self.config.is_decoder = True
        _, report = accelerated(self.model(self.config))
        self.assertEqual(set(report.replaced.values()),
                         {"transformers.models.bert.modeling_bert.BertLayer, imported"})
        self.assertEqual(report.falls_back, {})

    def test_state_dicts_of_bert_are_interchangeable(self):
        theirs = self.model(self.config)
        ours, _ = accelerated(theirs)
        self.assertEqual(list(ours.state_dict()), list(theirs.state_dict()))
        copy.deepcopy(theirs).load_state_dict(ours.state_dict(), strict=True)


if __name__ == "__main__":
    unittest.main()
