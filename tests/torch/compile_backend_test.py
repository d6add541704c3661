"""Tests of torch.compile(model, backend="millrace"): losses and gradients are eager's, equal layers share a plan, what
the language cannot express goes to Inductor and is named."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import tempfile
import threading
import time
import unittest
import unittest.mock
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import millrace.torch
from millrace.torch import linear_cross_entropy, operator, regions
from support import TorchTest

OPTIONS = {"choose": "plan"}  # no comparison with Inductor, whose compiler takes long


class Block(nn.Module):
    """A layer in the manner of GPT-2, with dropout."""

    def __init__(self, p: float = 0.0):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        q, k, v = (y.view(*x.shape[:2], 2, 4).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(8, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).reshape(x.shape)))
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm2(x)))))


class Model(nn.Module):
    def __init__(self, layers: int = 2, p: float = 0.0, between=lambda x: x):
        super().__init__()
        self.blocks = nn.ModuleList(Block(p) for _ in range(layers))
        self.head = nn.Linear(8, 5)
        self.between = between

    def forward(self, x, labels):
        for block in self.blocks:
            x = self.between(block(x))
        return functional.cross_entropy(self.head(x).view(-1, 5), labels)


def compiled(model: nn.Module, **options):
    """The compiled model, and what was compiled."""
    graphs = []

    def backend(graph, inputs):
        return millrace.torch.backend.compile_graph(graph, inputs, options=OPTIONS, listener=graphs.append)

    torch._dynamo.reset()
    return torch.compile(model, backend=backend, fullgraph=True, **options), graphs


class CompileBackendTest(TorchTest):
    def setUp(self):
        super().setUp()
        self.inputs = torch.randn(2, 3, 8, requires_grad=True), torch.tensor([0, 1, -100, 3, 4, 2])

    def check(self, model: nn.Module, *inputs, tolerance: float = 2e-5):
        """Compares a step with eager's; returns what was compiled."""
        run, graphs = compiled(model)
        reference = copy.deepcopy(model)
        losses = []
        for module in (run, reference):
            losses.append(module(*inputs))
            losses[-1].backward()
        self.assert_close(losses[0].detach(), losses[1].detach(), "the loss", tolerance)
        # A gradient may be zero but for rounding (a bias before a batch norm), and then has no scale of its own.
        largest = max(one.grad.abs().max().item() for one in reference.parameters() if one.grad is not None)
        for (name, ours), theirs in zip(model.named_parameters(), reference.parameters()):
            self.assertEqual(ours.grad is None, theirs.grad is None, name)
            if theirs.grad is not None:
                self.assertEqual(ours.grad.dtype, theirs.grad.dtype)
                self.assertLessEqual((ours.grad - theirs.grad).abs().max().item(), tolerance * largest, name)
        return graphs

    def test_a_step_is_eagers_and_equal_layers_share_a_plan(self):
        model = Model(3)
        before = list(model.state_dict())
        (graph,) = self.check(model, *self.inputs)
        layers = [region for region in graph.regions if region.name.startswith("blocks.")]
        self.assertEqual([region.name for region in layers], ["blocks.0", "blocks.1", "blocks.2"])
        self.assertEqual(len({region.choice.plan for region in layers}), 1)
        self.assertTrue(all(region.choice.plan for region in graph.regions))
        self.assertTrue(all(region.file.read_text() == region.program.text for region in graph.regions))
        self.assertEqual(list(model.state_dict()), before)

    def test_frozen_parameters_have_no_gradients(self):
        model = Model(1)
        model.blocks[0].up.requires_grad_(False)
        (graph,) = self.check(model, *self.inputs)
        self.assertIn("up_weight: fixed.float32", graph.regions[0].program.text)

    def test_without_gradients_nothing_is_saved(self):
        model = Model(1).eval()
        run, graphs = compiled(model)
        with torch.no_grad():
            self.assert_close(run(*self.inputs), model(*self.inputs))
        self.assertTrue(all(": float32" not in region.program.text for region in graphs[0].regions))

    def test_dropout_follows_the_mode_and_the_generator(self):
        model = Model(1, p=0.5)
        run, graphs = compiled(model)

        def loss(seed):
            torch.manual_seed(seed)
            return run(*self.inputs).item()

        self.assertEqual(loss(1), loss(1))
        self.assertNotEqual(loss(1), loss(2))
        model.eval()
        self.assertEqual(loss(1), loss(2))
        self.assertAlmostEqual(loss(1), model(*self.inputs).item(), places=5)
        self.assertEqual(["dropout(" in graph.regions[0].program.text for graph in graphs], [True, False])

    def test_what_the_language_lacks_goes_to_inductor(self):
        (graph,) = self.check(Model(2, between=lambda x: torch.sort(x, -1)[0]), *self.inputs)
        self.assertEqual(len(graph.regions), 3)
        (why,) = {why for name, why in graph.rest.items() if name.startswith("sort")}
        self.assertIn("no such operator", why)

    def test_autocast(self):
        model = Model(1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            (graph,) = self.check(model, *self.inputs, tolerance=6e-2)
        self.assertIn("astype(bfloat16)", graph.regions[0].program.text)

    def test_shapes(self):
        model = Model(1)
        run, graphs = compiled(model)
        with contextlib.redirect_stderr(io.StringIO()):
            for length in (3, 4, 5):
                x, labels = torch.randn(2, length, 8, requires_grad=True), torch.arange(2 * length) % 5
                self.assert_close(run(x, labels).detach(), model(x, labels).detach())
        self.assertEqual([len(graph.regions) for graph in graphs], [2, 2, 2])

    def test_explain_names_programs_plans_and_the_rest(self):
        torch._dynamo.reset()
        found = millrace.torch.explain(Model(3, between=lambda x: x * 1.5), *self.inputs, options=OPTIONS)
        text = str(found)
        self.assertIn("graph 0: 4 regions, 3 different", text)
        self.assertIn("blocks.1: as blocks.0", text)
        self.assertIn(str(found.graphs[0].regions[0].file), text)
        self.assertIn("chosen by options", text)

    def test_the_faster_one_runs_and_is_remembered(self):
        torch._dynamo.reset()
        model = nn.Sequential(nn.Linear(8, 7), nn.GELU(), nn.Linear(7, 6))
        x = torch.randn(3, 8)
        times = [2e-3, 1e-3]  # the plan is slower
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, MILLRACE_CACHE_DIR=folder):
            with unittest.mock.patch.object(regions, "step_seconds", lambda functions, tensors: times):
                first = millrace.torch.explain(model, x).graphs[0].regions[0].choice
            regions.forget_choices()
            with unittest.mock.patch.object(regions, "step_seconds", side_effect=AssertionError("timed again")):
                torch._dynamo.reset()
                found = millrace.torch.explain(model, x)
        self.assertEqual((first.plan, first.plan_seconds, first.inductor_seconds), (None, *times))
        self.assertEqual(found.graphs[0].regions[0].choice, first)
        self.assertIn("2 ms by the plan, 1 ms by Inductor", str(found))

    def test_both_are_timed_with_a_backward_pass_and_the_generator_stays(self):
        calls = []

        def function(*tensors):
            calls.append(torch.is_grad_enabled())
            return (tensors[0] * torch.rand(()),)

        state = torch.get_rng_state()
        x = torch.randn(3, requires_grad=True)
        torch.set_rng_state(state)
        found = regions.step_seconds([function, function], (x,))
        self.assertTrue(torch.equal(torch.get_rng_state(), state))
        self.assertEqual(len(found), 2)
        self.assertTrue(all(seconds > 0 for seconds in found))
        self.assertIsNone(x.grad)

    def test_more_shapes_than_plans(self):
        model = nn.Sequential(nn.Linear(8, 7), nn.GELU(), nn.Linear(7, 6))
        run, graphs = compiled(model)
        said = io.StringIO()
        with unittest.mock.patch.object(millrace.torch.backend, "_MOST_SHAPES", 1), contextlib.redirect_stderr(said):
            for length in (3, 4, 5):
                x = torch.randn(length, 8)
                self.assert_close(run(x).detach(), model(x).detach())
        self.assertEqual([len(graph.regions) for graph in graphs], [1, 1, 0])
        self.assertIn("more than 1 shapes", said.getvalue())

    def test_checkpointing_around_the_compiled_model(self):
        model = Model(1, p=0.5)
        run, _ = compiled(model)
        losses, gradients = [], []
        for call in (lambda: run(*self.inputs), lambda: checkpoint(run, *self.inputs, use_reentrant=False)):
            torch.manual_seed(5)
            losses.append(call())
            gradients.append(torch.autograd.grad(losses[-1], list(model.parameters())))
        self.assertEqual(losses[0].item(), losses[1].item())
        self.assertTrue(all(torch.equal(one, other) for one, other in zip(*gradients)))

    def test_a_counter_of_the_model_counts(self):
        class Normed(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear, self.norm, self.out = nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 5)

            def forward(self, x, labels):
                return functional.cross_entropy(self.out(self.norm(self.linear(x.flatten(0, 1)))), labels)

        model = Normed()
        (graph,) = self.check(model, *self.inputs)
        self.assertEqual(len(graph.regions), 2)
        self.assertEqual(model.norm.num_batches_tracked.item(), 1)

    def test_a_result_that_needs_no_gradient(self):
        class Constant(Model):
            def forward(self, x, labels):  # PyTorch refuses running statistics with gradients
                hidden = self.blocks[0](x).flatten(0, 1)
                zeros = torch.zeros(hidden.shape[1])
                normed = functional.batch_norm(hidden, zeros, zeros + 1, training=True)
                return functional.cross_entropy(self.head(normed), labels)

        self.check(Constant(1), *self.inputs)
        model = nn.Linear(8, 6)
        run, _ = compiled(lambda x: (model(x), model(x.detach()).detach() * 2, torch.ones(3) * 2))
        self.assertEqual([result.requires_grad for result in run(self.inputs[0])], [True, False, False])

    def test_the_fused_loss(self):
        """Inductor's part of the graph calls it; the rest has plans."""
        class Fused(Model):
            def forward(self, x, labels):
                return linear_cross_entropy(self.blocks[0](x).flatten(0, 1), self.head.weight, labels, self.head.bias)

        (graph,) = self.check(Fused(1), *self.inputs)
        self.assertEqual([region.name for region in graph.regions], ["blocks.0"])
        self.assertIn("linear_cross_entropy", str(graph.rest))

    def test_a_result_that_no_loss_reads_has_no_gradient(self):
        class Both(Model):
            def forward(self, x, labels):
                logits = self.head(self.blocks[0](x))
                return functional.cross_entropy(logits.view(-1, 5), labels), logits

        torch._dynamo.reset()
        model, given, graphs = Both(1), [], []
        run = torch.compile(model, backend=lambda graph, inputs: millrace.torch.backend.compile_graph(
            graph, inputs, options=OPTIONS, listener=graphs.append))
        backward = operator._backward

        def watched(path, gradients, *rest):
            given.extend(gradients)
            return backward(path, gradients, *rest)

        with unittest.mock.patch.object(operator, "_backward", watched):
            loss, logits = run(*self.inputs)
            loss.backward()
        expected, expected_logits = copy.deepcopy(model)(*self.inputs)
        self.assert_close(loss.detach(), expected.detach())
        self.assert_close(logits.detach(), expected_logits.detach())
        self.assertEqual([len(region.program.results) for region in graphs[0].regions], [1, 1])
        self.assertEqual(len(given), 2)
        self.assertTrue(all(gradient.any() for gradient in given))
        model.zero_grad()
        (run(*self.inputs)[1].square().sum() + run(*self.inputs)[0]).backward()  # a loss that does read it
        found = {name: one.grad for name, one in model.named_parameters()}
        reference = copy.deepcopy(model)
        reference.zero_grad()
        (reference(*self.inputs)[1].square().sum() + reference(*self.inputs)[0]).backward()
        for name, one in reference.named_parameters():
            torch.testing.assert_close(found[name], one.grad, rtol=1e-4, atol=1e-4)

    def test_by_name_and_wrong_options(self):
        torch._dynamo.reset()
        model = Model(1)
        run = torch.compile(model, backend="millrace", options=OPTIONS)
        self.assert_close(run(*self.inputs).detach(), model(*self.inputs).detach())
        torch._dynamo.reset()
        with self.assertRaisesRegex(Exception, "has no option 'bugdet'"):
            torch.compile(model, backend="millrace", options={"bugdet": "1s"})(*self.inputs)
        torch._dynamo.reset()
        with self.assertRaisesRegex(Exception, "has no mode 'max-autotune': for a CUDA graph use"):
            torch.compile(model, backend="millrace", mode="max-autotune")(*self.inputs)

    def test_threads_that_come_together_choose_once(self):
        def choose(region, tensors):
            chosen.append(region.name)
            time.sleep(0.3)  # the others come
            return regions.Choice(None, "of the test")

        chosen, results = [], []
        region = regions.Region("layer", SimpleNamespace(draws=False), Path(), nn.Identity(), regions.Options())
        region.inductor = lambda x: (x * 2,)
        threads = [threading.Thread(target=lambda: results.append(region(torch.ones(3)))) for _ in range(3)]
        with unittest.mock.patch.object(regions, "choose", choose):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(chosen, ["layer"])
        self.assertEqual([one.tolist() for (one,) in results], [[2.0] * 3] * 3)

    def test_the_rest_is_compiled_for_each_layout(self):
        """Code of Inductor asserts the strides of its operands. A plan's results are contiguous, those of Inductor's
        code for the same region may not be."""
        compiled = []

        def compile_for(module, tensors):
            strides = [one.stride() for one in tensors]
            compiled.append(strides)

            def call(*given):
                self.assertEqual([one.stride() for one in given], strides)
                return module(*given)

            return call

        rest, x = regions.Rest(nn.Sigmoid()), torch.randn(3, 4)
        with unittest.mock.patch.object(torch._inductor, "compile", compile_for):
            for given in (x, x.t().contiguous().t(), x):
                self.assertTrue(torch.equal(rest(given), x.sigmoid()))
        self.assertEqual(compiled, [[(4, 1)], [(1, 3)]])


if __name__ == "__main__":
    unittest.main()
