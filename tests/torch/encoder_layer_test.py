"""Compares millrace.torch.TransformerEncoderLayer with torch.nn's: results and all gradients."""

from __future__ import annotations

import contextlib
import copy
import io
import threading
import unittest
import warnings
from unittest import mock

import torch
from torch import nn
from torch.nn import functional

import millrace.torch
from millrace import plan_cache
from millrace.torch import encoder_layer, programs
from support import TOLERANCE, TorchTest, pair

HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64


def masks(kind: str, batch: int, length: int, heads: int, dtype) -> dict:
    """Arguments for a call. No row masks all keys."""
    padding = torch.zeros(batch, length, dtype=torch.bool)
    padding[-1, -2:] = True
    square = nn.Transformer.generate_square_subsequent_mask(length, dtype=dtype)
    by_head = torch.rand(batch * heads, length, length) < 0.3
    by_head[:, :, 0] = False
    return {
        "": {},
        "padding": {"src_key_padding_mask": padding},
        "float": {"src_mask": torch.randn(length, length, dtype=dtype)},
        "causal": {"src_mask": square, "is_causal": True},
        "by head": {"src_mask": by_head},
        "both": {"src_mask": square, "src_key_padding_mask": torch.zeros(batch, length, dtype=dtype).masked_fill(
            padding, float("-inf"))},
        "causal, padding": {"src_mask": square, "src_key_padding_mask": padding, "is_causal": True},
    }[kind]


class EncoderLayerTest(TorchTest):
    def check(self, dtype, mask="", batch_first=True, batch=3, length=5, heads=2, head=4, **options):
        embedding = heads * head
        ours, theirs = pair(embedding, heads, 12, dropout=0.0, batch_first=batch_first, dtype=dtype, **options)
        x = torch.randn((batch, length, embedding) if batch_first else (length, batch, embedding), dtype=dtype)
        given = masks(mask, batch, length, heads, dtype)
        self.assert_same_step(ours, theirs, [x], lambda module, y: module(y, **given))

    def test_defaults(self):
        self.check(DOUBLE)

    def test_projections_are_stacked_where_they_are_parts_of_one_tensor(self):
        asked = []
        real = plan_cache.find_plan

        def find_plan(*arguments, **options):
            asked.append(options["layouts"])
            return real(*arguments, **options)

        with mock.patch.object(plan_cache, "find_plan", find_plan):
            self.check(SINGLE, length=6, batch=2)  # sizes of no other test
            self.check(SINGLE, length=6, batch=2, bias=False)
        weights = ("wq+wk+wv=stacked", "d_wq+d_wk+d_wv=stacked")
        biases = ("bq+bk+bv=stacked", "d_bq+d_bk+d_bv=stacked")
        self.assertEqual(asked, [weights + biases, weights])

    def test_which_projections_are_stacked(self):
        for pieces, expected in (([3, 3, 1, 1], "wb"), ([3, 1], "w"), ([1, 1, 1, 3, 1], "b"), ([1] * 6, "")):
            self.assertEqual(programs.stacked(pieces), expected)
        self.assertEqual(programs.stacked_layouts("b"), ("bq+bk+bv=stacked", "d_bq+d_bk+d_bv=stacked"))

    def test_pre_norm_gelu_padding(self):
        self.check(DOUBLE, "padding", batch_first=False, norm_first=True, activation="gelu")

    def test_no_bias_float_mask(self):
        self.check(DOUBLE, "float", norm_first=True, bias=False)

    def test_no_bias_causal(self):
        self.check(DOUBLE, "causal", batch_first=False, activation=functional.gelu, bias=False)

    def test_a_mask_for_each_head(self):
        self.check(DOUBLE, "by head", activation=nn.GELU(approximate="tanh"))

    def test_both_masks(self):
        self.check(DOUBLE, "both", batch_first=False, norm_first=True, activation=functional.silu)

    def test_odd_sizes_causal_and_padding(self):
        self.check(SINGLE, "causal, padding", batch=1, length=7, heads=3, head=5, layer_norm_eps=1e-3)

    def test_float16(self):
        self.check(HALF, "padding", norm_first=True, activation="gelu")

    def test_bfloat16(self):
        self.check(BRAIN, batch_first=False)

    def test_without_a_batch(self):
        ours, theirs = pair(8, 2, 12, dropout=0.0)
        self.assert_same_step(ours, theirs, [torch.randn(5, 8)])

    def test_eval_drops_nothing(self):
        ours, theirs = pair(8, 2, 12, dropout=0.5, batch_first=True)
        self.assert_same_step(ours.eval(), theirs.eval(), [torch.randn(3, 5, 8)])
        with torch.no_grad():
            x = torch.randn(3, 5, 8)
            self.assert_close(ours(x), theirs(x))

    def test_several_shapes_in_one_module(self):
        ours, theirs = pair(8, 2, 12, dropout=0.0, batch_first=True)
        for shape in ((3, 5, 8), (1, 1, 8), (3, 5, 8)):
            self.assert_same_step(ours, theirs, [torch.randn(shape)])

    def test_what_is_not_contiguous_is_copied(self):
        ours, theirs = pair(8, 2, 12, dropout=0.0, batch_first=True)
        x = torch.randn(5, 3, 8).transpose(0, 1)
        self.assert_same_step(ours, theirs, [x])
        self.assert_close(ours(torch.ones(1, 1, 8).expand(3, 5, 8)), theirs(torch.ones(3, 5, 8)))

    def test_autocast(self):
        ours, theirs = pair(8, 2, 12, dropout=0.0, batch_first=True)
        x = torch.randn(3, 5, 8)

        def call(module, y):
            with torch.autocast("cpu", dtype=BRAIN):
                return module(y)

        self.assert_same_step(ours, theirs, [x], call, tolerance=TOLERANCE[BRAIN])

    def test_a_row_of_masked_keys_only_is_not_nan(self):
        ours, _ = pair(8, 2, 12, dropout=0.0, batch_first=True, dtype=DOUBLE)
        padding = torch.zeros(3, 5, dtype=torch.bool)
        padding[0] = True
        x = torch.randn(3, 5, 8, dtype=DOUBLE, requires_grad=True)
        y = ours(x, src_key_padding_mask=padding)
        y.sum().backward()
        self.assertTrue(y.isfinite().all() and x.grad.isfinite().all())


class OwnershipTest(TorchTest):
    """Calls and modules do not share state."""

    def setUp(self):
        super().setUp()
        self.ours, self.theirs = pair(8, 2, 12, dropout=0.0, batch_first=True)

    def test_state_dicts_are_interchangeable(self):
        self.theirs.load_state_dict(self.ours.state_dict(), strict=True)
        self.assertEqual(list(self.ours.state_dict()), list(self.theirs.state_dict()))
        file = io.BytesIO()
        torch.save(copy.deepcopy(self.ours), file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        x = torch.randn(3, 5, 8)
        self.assertTrue(torch.equal(loaded(x), self.ours(x)))

    def test_several_forwards_before_their_backwards(self):
        inputs = [torch.randn(3, 5, 8, requires_grad=True) for _ in range(3)]
        expected = [torch.autograd.grad(self.theirs(x).square().sum(), x)[0] for x in inputs]
        results = [self.ours(x).square().sum() for x in inputs]
        for k in (1, 2, 0):
            found = torch.autograd.grad(results[k], inputs[k], retain_graph=True)[0]
            self.assert_close(found, expected[k])
        self.assert_close(torch.autograd.grad(results[1], inputs[1])[0], expected[1], "again")

    def test_layers_that_share_a_plan(self):
        stack = nn.Sequential(self.ours, copy.deepcopy(self.ours), self.ours)
        theirs = nn.Sequential(self.theirs, copy.deepcopy(self.theirs), self.theirs)
        self.assert_same_step(stack, theirs, [torch.randn(3, 5, 8)], tolerance=1e-4)

    def test_threads_take_turns(self):
        inputs = [torch.randn(3, 5, 8) for _ in range(8)]
        expected = [self.ours(x) for x in inputs]
        found = [None] * len(inputs)

        def work(k):
            for _ in range(20):
                found[k] = self.ours(inputs[k])

        threads = [threading.Thread(target=work, args=(k,)) for k in range(len(inputs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for x, y in zip(found, expected):
            self.assertTrue(torch.equal(x, y))

    def test_a_parameter_changed_before_backward_is_noticed(self):
        y = self.ours(torch.randn(3, 5, 8)).sum()
        with torch.no_grad():
            self.ours.linear1.weight.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.backward()

    def test_frozen_parameters_get_no_gradient(self):
        self.ours.linear1.weight.requires_grad_(False)
        self.ours(torch.randn(3, 5, 8)).sum().backward()
        self.assertIsNone(self.ours.linear1.weight.grad)
        self.assertIsNotNone(self.ours.linear2.weight.grad)

    def test_training_matches_pytorch(self):
        x, target = torch.randn(3, 5, 8), torch.randn(3, 5, 8)
        losses = []
        for module in (self.ours, self.theirs):
            optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
            for _ in range(10):
                optimizer.zero_grad()
                loss = functional.mse_loss(module(x), target)
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
        self.assertAlmostEqual(*losses, places=4)


class RepeatedCallTest(TorchTest):
    """A repeated call takes a fast path, which must still notice changes of everything that a plan depends on."""

    def setUp(self):
        super().setUp()
        self.ours, self.theirs = pair(8, 2, 12, dropout=0.0, batch_first=True)
        self.x = torch.randn(3, 5, 8)

    def assert_looked_at(self, expected, call):
        with mock.patch.object(self.ours, "_why_not", wraps=self.ours._why_not) as why_not:
            call()
        self.assertEqual(why_not.called, expected)

    def test_the_second_call_takes_the_fast_path(self):
        self.assert_looked_at(True, lambda: self.ours(self.x))
        self.assert_looked_at(False, lambda: self.ours(torch.randn(3, 5, 8)))
        self.assert_same_step(self.ours, self.theirs, [self.x])
        self.assert_looked_at(True, lambda: self.ours(self.x[:2]))
        for length in (3, 2, 3):
            self.assert_looked_at(False, lambda: self.ours(self.x[:length]))
        self.assert_looked_at(True, lambda: self.ours(self.x, src_mask=torch.zeros(5, 5)))

    def test_another_budget_asks_for_the_plan_again(self):
        self.ours(self.x)
        millrace.torch.set_budget(None)
        self.assert_looked_at(True, lambda: self.ours(self.x))

    def test_changes_are_noticed(self):
        def replace_norm(module):
            module.norm2 = nn.LayerNorm(8, eps=0.3)

        def widen(module):
            torch.manual_seed(3)
            module.linear1, module.linear2 = nn.Linear(8, 16), nn.Linear(16, 8)

        def lay_otherwise(module):
            module.linear1.weight.data = module.linear1.weight.data.t().contiguous().t()

        def drop_nothing(module):
            module.train()
            module.dropout1.p = 0.0

        def change_heads(module):
            module.self_attn.num_heads, module.self_attn.head_dim = 4, 2

        for change in (lambda module: setattr(module.norm1, "eps", 0.5), replace_norm, widen,
                       lambda module: setattr(module, "activation", functional.gelu),
                       lambda module: setattr(module, "norm_first", True), lambda module: module.eval(), drop_nothing,
                       change_heads, lambda module: module.double(), lay_otherwise):
            self.ours(self.x)
            self.assert_looked_at(False, lambda: self.ours(self.x))
            change(self.ours), change(self.theirs)
            self.x = self.x.to(self.ours.linear1.weight.dtype)
            self.assert_same_step(self.ours, self.theirs, [self.x], tolerance=1e-4)

    def test_dropout_that_is_turned_on_and_off(self):
        self.ours(self.x)
        self.ours.dropout1.p = 0.5
        self.assertFalse(torch.equal(self.ours(self.x), self.ours(self.x)))
        self.ours.eval()
        self.assert_close(self.ours(self.x), self.theirs(self.x))

    def test_the_causal_hint(self):
        self.ours(self.x)
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        expected = self.theirs(self.x, src_mask=mask, is_causal=True)
        for _ in range(2):
            self.assert_close(self.ours(self.x, is_causal=True), expected)

    def test_autocast(self):
        self.ours(self.x)
        with torch.autocast("cpu", dtype=BRAIN):
            for _ in range(2):
                self.assert_looked_at(True, lambda: self.ours(self.x))
            self.assert_close(self.ours(self.x), self.theirs(self.x).float(), tolerance=TOLERANCE[BRAIN])
        self.assert_looked_at(False, lambda: self.ours(self.x))

    def test_inputs_that_are_not_contiguous(self):
        self.ours(self.x)
        x = torch.randn(5, 3, 8).transpose(0, 1)
        self.assert_same_step(self.ours, self.theirs, [x])

    def test_parameters_that_left_the_device(self):
        self.ours(self.x)
        self.ours.linear1.to("meta")
        with self.assertWarnsRegex(UserWarning, "a parameter on meta"), self.assertRaises((RuntimeError, TypeError)):
            warnings.simplefilter("always")
            self.ours(self.x)

    def test_parameters_of_a_functional_call(self):
        self.ours(self.x)
        others = {name: torch.randn_like(parameter) for name, parameter in self.ours.named_parameters()}
        for _ in range(2):
            self.assert_close(torch.func.functional_call(self.ours, others, (self.x,)),
                              torch.func.functional_call(self.theirs, others, (self.x,)), tolerance=1e-4)

    def test_nothing_of_it_is_copied_or_saved(self):
        self.ours(self.x)
        self.assertIn("_millrace_calls", self.ours.__dict__)
        copied = copy.deepcopy(self.ours)
        self.assertNotIn("_millrace_calls", copied.__dict__)
        self.assertTrue(torch.equal(copied(self.x), self.ours(self.x)))

    def test_no_tensor_is_held(self):
        self.ours(self.x)
        held = [value for facts, (call, _) in self.ours._millrace_calls.items() for value in (*facts, *call)]
        self.assertFalse([value for value in held if isinstance(value, (torch.Tensor, nn.Module))])

    def test_remembered_calls_are_limited(self):
        with mock.patch.object(encoder_layer, "_MOST_CALLS", 2):
            for batch in (1, 2, 3, 1):
                self.ours(self.x[:batch])
                self.assertLessEqual(len(self.ours._millrace_calls), 2)


class FallbackTest(TorchTest):
    """Calls that a plan does not cover fall back to PyTorch, with one warning."""

    def check(self, why, change=lambda module: None, **options):
        named = dict(dropout=0.0, batch_first=True) | options
        ours, theirs = pair(8, 2, 12, **named)
        x = torch.randn(3, 5, 8)
        if "activation" not in options:
            ours(x)  # by a plan: its remembered call must not hide the change
        change(ours), change(theirs)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            first, _ = ours(x), ours(x)
        told = [str(warning.message) for warning in caught if "millrace" in str(warning.message)]
        self.assertEqual(len(told), 1, told)
        self.assertIn(why, told[0])
        self.assert_close(first, theirs(x))

    def test_an_activation_that_the_language_lacks(self):
        self.check("the activation is 'tanh'", activation=torch.tanh)

    def test_a_submodule_of_another_class(self):
        class Louder(nn.Linear):
            def forward(self, x):
                return 2 * super().forward(x)

        def change(module):
            module.linear1.__class__ = Louder

        self.check("linear1 is a Louder", change)

    def test_hooks_are_called(self):
        self.check("linear2 has hooks", lambda module: module.linear2.register_forward_hook(lambda m, i, y: -y))

    def test_parameters_of_another_type(self):
        ours, _ = pair(8, 2, 12, dropout=0.0, batch_first=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with self.assertRaises(RuntimeError):
                ours(torch.randn(3, 5, 8, dtype=DOUBLE))  # raised by PyTorch
        self.assertIn("the input is torch.float64", str(caught[0].message))

    def test_tensors_that_no_plan_takes_after_one_that_it_took(self):
        ours, _ = pair(8, 2, 12, dropout=0.0, batch_first=True)
        x = torch.randn(3, 5, 8)
        ours(x)
        ours(x)  # without the full checks
        for other, why in ((x.to("meta"), "is on meta; plans run on the CPU"), (x.to_sparse(), "is torch.sparse_coo")):
            with self.subTest(why), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with contextlib.suppress(RuntimeError, NotImplementedError, AssertionError):  # of PyTorch's own code
                    ours(other)
                self.assertIn(why, millrace.torch.plan_of(ours).why_not)

    def test_no_plan_for_other_devices(self):
        layer = millrace.torch.TransformerEncoderLayer(8, 2, 12, batch_first=True, device="meta")
        warnings.simplefilter("ignore")
        self.assertEqual(layer(torch.randn(3, 5, 8, device="meta")).shape, (3, 5, 8))


if __name__ == "__main__":
    unittest.main()
