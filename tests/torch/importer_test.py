"""Tests that graphs of PyTorch become programs: each writer's text under NumPy gives what the operator computes, and
what has no text is named."""

from __future__ import annotations

import inspect
import unittest
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from millrace.torch import capture, importer, module_names, partition, values
from millrace.torch.aten_writer import covered


def graph_of(function, *tensors):
    """The simplified ATen graph of a function."""
    graphs = []

    def backend(graph, inputs):
        captured = capture.capture(graph, inputs, torch._guards.detect_fake_mode(inputs))
        named = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        placeholders = [node for node in captured.module.graph.nodes if node.op == "placeholder"]
        for node, name in zip(placeholders, named):
            node.meta["argument"] = name.removeprefix("l_").removesuffix("_")
        graphs.append(captured)
        return graph.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=True)(*tensors)
    return graphs[0]


def program_of(function, *tensors) -> importer.Program:
    captured = graph_of(function, *tensors)
    nodes = [node for node in captured.module.graph.nodes if node.op == "call_function"]
    return importer.import_region(nodes, "", captured.names, captured.model)


def run_under_numpy(program: importer.Program, function, tensors) -> list[np.ndarray]:
    module = {"__name__": "program"}
    exec(program.text, module)
    named = dict(zip(inspect.signature(function).parameters, tensors))
    given = [named[node.meta["argument"]].detach().numpy() for node in program.arguments]
    results = module[program.name](*given)
    return list(results) if isinstance(results, tuple) else [results]


class WritersTest(unittest.TestCase):
    def check(self, function, *tensors):
        program = program_of(function, *tensors)
        (found,) = run_under_numpy(program, function, tensors)
        expected = function(*tensors)
        self.assertEqual(tuple(found.shape), tuple(expected.shape), program.text)
        np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-10, atol=1e-12, err_msg=program.text)

    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(2, 3, 4, dtype=torch.float64)
        self.y = torch.randn(2, 3, 4, dtype=torch.float64)

    def test_elementwise(self):
        def many(x, y):
            positive = x.abs() + 0.5
            sums = torch.exp(x) + torch.log(positive) - torch.sqrt(positive) * torch.tanh(y) / positive
            more = torch.rsqrt(positive) + x.pow(3) + torch.sin(x) * torch.cos(y) + (2 - x) - y.neg()
            acts = functional.gelu(x) + functional.gelu(y, approximate="tanh") + functional.silu(x) + torch.relu(y)
            return sums + more + acts + torch.sigmoid(x) + torch.erf(y) + torch.maximum(x, y) + x.clamp(-1, 0.5)

        self.check(many, self.x, self.y)
        self.check(lambda x, y: torch.add(x, y, alpha=3) + torch.sub(x, y, alpha=2), self.x, self.y)

    def test_masks(self):
        mask = torch.tensor([True, False, True, True])
        self.check(lambda x, m: torch.where(m & ~(x > 0), x, 0.0).masked_fill(x < -1, -5.0), self.x, mask)
        self.check(lambda x, m: x * m.to(x.dtype), self.x, mask)
        self.check(lambda x, m: x * m.type_as(x) + x.type_as(x), self.x, mask)

    def test_reductions_and_norms(self):
        weight = torch.randn(4, dtype=torch.float64)
        self.check(lambda x: x.sum(-1, keepdim=True) + x.mean((0, 1)) + x.amax(1, keepdim=True) + x.sum(), self.x)
        self.check(lambda x: x.var(-1, keepdim=True) + x.std(-1, keepdim=True, correction=0), self.x)
        self.check(lambda x: torch.softmax(x, 1) + torch.log_softmax(x, -1), self.x)
        self.check(lambda x, w: functional.layer_norm(x, (4,), w), self.x, weight)
        self.check(lambda x, w: functional.rms_norm(x, (4,), w, 1e-6), self.x, weight)

    def test_shapes(self):
        self.check(lambda x: x.view(6, 4).t().reshape(2, 2, 6).transpose(0, 2).unsqueeze(1).squeeze(1), self.x)
        self.check(lambda x: x.permute(2, 0, 1)[1:, :, -1].expand(5, 3, 2) * 2, self.x)
        self.check(lambda x: torch.cat([part * 2 for part in x.chunk(2, -1)] + [x.split([1, 3], -1)[1]], -1), self.x)
        self.check(lambda x: torch.stack(x.unbind(1), 0).flatten(1) * 1.5, self.x)
        self.check(lambda x: x.repeat(1, 2, 1) + x.repeat_interleave(2, 1) + x[:, :1].expand(2, 6, 4), self.x)
        self.check(lambda x: torch.triu(x, 1) + torch.arange(4) * 0.5 + torch.full((3, 1), 2.0), self.x)

    def test_products(self):
        weight, bias = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
        self.check(lambda x, w, b: functional.linear(x, w, b), self.x, weight, bias)
        self.check(lambda x, y: x @ y.mT + torch.bmm(x, y.transpose(1, 2)), self.x, self.y)
        self.check(lambda x, w, b: torch.addmm(b, x.view(6, 4), w.t(), beta=2, alpha=0.5), self.x, weight, bias)
        image, kernel = torch.randn(2, 3, 8, 8, dtype=torch.float64), torch.randn(5, 3, 4, 4, dtype=torch.float64)
        self.check(lambda x, w, b: functional.conv2d(x, w, b, stride=4), image, kernel, bias)

    def test_attention(self):
        q, k = torch.randn(2, 4, 3, 8, dtype=torch.float64), torch.randn(2, 2, 3, 8, dtype=torch.float64)
        mask = torch.rand(2, 1, 3, 3) > 0.4
        mask[..., 0] = True
        attention = functional.scaled_dot_product_attention
        self.check(lambda q: attention(q, q, q, is_causal=True), q)
        self.check(lambda q, m: attention(q, q, q, m, scale=0.3), q, mask)
        self.check(lambda q, k: attention(q, k, k, enable_gqa=True), q, k)
        self.check(lambda q, k, m: attention(q, k, k, m, enable_gqa=True), q, k, mask)

    def test_attention_is_written_so_that_plans_fuse_it(self):
        q, k = torch.randn(2, 4, 3, 8, dtype=torch.float64), torch.randn(2, 2, 3, 8, dtype=torch.float64)

        def repeated(q, k):
            keys = k[:, :, None].expand(2, 2, 2, 3, 8).reshape(2, 4, 3, 8)
            positions = torch.arange(3)
            mask = (positions[None, :] <= positions[:, None])[None, None].expand(2, 1, 3, 3)
            return functional.scaled_dot_product_attention(q, keys, keys, mask)

        self.check(repeated, q, k)
        text = program_of(repeated, q, k).text
        self.assertIn("causal_mask", text)
        self.assertIn('"bgrqp,bgkp->bgrqk"', text)

    def test_losses_and_embeddings(self):
        logits, labels = torch.randn(6, 5, dtype=torch.float64), torch.tensor([0, 4, -100, 2, 1, -100])
        self.check(lambda x, y: functional.cross_entropy(x, y), logits, labels)
        self.check(lambda x, y: functional.cross_entropy(x, y, reduction="sum"), logits, labels)
        for wrong in (5, -1):  # labels of no class: PyTorch raises an error, a plan returns inf
            (loss,) = run_under_numpy(program_of(lambda x, y: functional.cross_entropy(x, y), logits, labels),
                                      lambda x, y: None, (logits, labels.where(labels != 2, wrong)))
            self.assertEqual(loss, np.inf)
        self.check(lambda x, ids: functional.embedding(ids, x), logits, torch.tensor([[1, 3], [0, 5]]))

    def test_autocast_gives_explicit_casts(self):
        weight = torch.randn(5, 4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            text = program_of(lambda x, w: functional.linear(x, w) + 1, self.x.float(), weight).text
        self.assertIn("x.astype(bfloat16)", text)
        self.assertIn("x_2.astype(bfloat16)", text)

    def test_gradients_stop_at_detach(self):
        x, w = self.x.clone().requires_grad_(), torch.randn(4, 4, dtype=torch.float64, requires_grad=True)

        def function(x, w):
            with torch.no_grad():
                scale = (x @ w).mean()
            return x * scale

        captured = graph_of(function, x, w)
        found = partition.partition(captured.module.graph)
        scale = next(node for node in captured.module.graph.nodes if "mean" in node.name)
        self.assertFalse(values.requires_grad(scale))
        self.assertFalse(any(piece.is_region() for piece in found.pieces), "its product has no gradient")


class NotCoveredTest(unittest.TestCase):
    def reasons(self, function, *tensors) -> dict[str, str]:
        nodes = graph_of(function, *tensors).module.graph.nodes
        return {node.target._opname: why for node in nodes
                if node.op == "call_function" and hasattr(node.target, "_opname") and (why := covered(node))}

    def test_reasons(self):
        x = torch.randn(3, 4)
        self.assertIn("no such operator", self.reasons(lambda x: torch.sort(x)[0], x)["sort"])
        self.assertIn("integers", self.reasons(lambda x: x.long() * 2, x)["mul"])
        self.assertIn("padding row", self.reasons(lambda w, i: functional.embedding(i, w, 0), x,
                                                  torch.tensor([1]))["embedding"])
        self.assertIn("threshold below 20", self.reasons(lambda x: functional.softplus(x, threshold=1), x)["softplus"])

    def test_a_change_of_an_input_in_place(self):
        def function(x):
            x.add_(1)
            return x * 2

        with self.assertRaisesRegex(Exception, "in place"):
            graph_of(function, torch.randn(3))

    def test_a_change_of_a_new_tensor_in_place(self):
        x = torch.randn(3, dtype=torch.float64)
        WritersTest.check(self, lambda x: (x * 2).add_(1).relu_() + 1, x)


class CapturedTest(unittest.TestCase):
    """The captured graph computes what the function does, or the function is refused."""

    def captures(self, function, *tensors) -> bool:
        try:
            captured = graph_of(function, *tensors)
        except Exception as error:
            self.assertIn("in place", str(error))
            return False
        found = captured.module(*tensors)
        torch.testing.assert_close(found[0] if isinstance(found, tuple) else found, function(*tensors))
        return True

    def test_changes_in_place_of_tensors_and_their_parts(self):
        def whole(x):
            y = x * 1
            y += 2
            y *= x
            return y.relu_()

        def parts(x):
            y = torch.zeros(4, 4)
            y[1] = 1
            y[:, 3] = x[:, 0]
            return y @ x

        for function in (whole, parts):
            with self.subTest(function=function.__name__):
                self.assertTrue(self.captures(function, torch.randn(4, 5)))

    def test_changes_in_place_that_views_show(self):
        views = {
            "diagonal": lambda y: y.diagonal(0),
            "chunk": lambda y: y.chunk(2, 1)[0],
            "unbind": lambda y: y.unbind(0)[1],
            "as_strided": lambda y: y.as_strided((4,), (5,)),
            "transpose": lambda y: y.transpose(0, 1)[2],
            "view of a view": lambda y: y.view(16)[3:7],
            "reshape": lambda y: y.reshape(2, 8),
        }

        def by_view(x, view):
            y = torch.ones(4, 4)
            view(y).fill_(3)
            return y @ x

        def read_later(x, view):
            y = torch.ones(4, 4)
            seen = view(y)
            y.add_(1)
            return (y @ x).sum() * seen.sum()

        def view_read_later(x, view):
            y = torch.ones(4, 4)
            seen = view(y)
            seen.fill_(2)
            return (y @ x).sum() * seen.sum()

        def result_read(x, view):
            y = torch.ones(4, 4)
            return (view(y).fill_(2) @ torch.ones_like(view(y))).sum() * (y @ x).sum()

        for name, view in [("part", lambda y: y[1]), *views.items()]:
            for function in (by_view, read_later, view_read_later, result_read):
                if function is result_read and name not in ("part", "diagonal", "as_strided"):
                    continue
                with self.subTest(view=name, function=function.__name__):
                    self.captures(lambda x: function(x, view), torch.randn(4, 5))

    def test_norms_change_their_statistics(self):
        """The schemas of the norms say that they change nothing."""
        def normed(x, mean, variance):
            return functional.batch_norm(x, mean, variance, training=True)

        def of_copies(x, mean, variance):
            return functional.batch_norm(x, mean.clone(), variance * 1, training=True)

        def read_before(x, mean, variance):
            before = mean.clone()
            return functional.batch_norm(x, mean, variance, training=True) - before

        def read_after(x, mean, variance):
            return functional.batch_norm(x, mean, variance, training=True) + mean

        def twice(x, mean, variance):
            return normed(x, mean, variance) + normed(x * 2, mean, variance)

        def result_unread(x, mean, variance):
            normed(x, mean, variance)
            return x * 2

        def evaluated(x, mean, variance):
            return functional.batch_norm(x, mean, variance) + mean

        kept = {normed, of_copies, evaluated}
        for function in (*kept, read_before, read_after, twice, result_unread):
            with self.subTest(function.__name__):
                given = torch.randn(6, 4), torch.randn(4), torch.rand(4)
                by_graph, expected = ([one.clone() for one in given] for _ in range(2))
                try:
                    captured = graph_of(function, *(one.clone() for one in given))
                except Exception as error:
                    self.assertIn("changes statistics", str(error))
                    self.assertNotIn(function, kept)
                    continue
                self.assertIn(function, kept)
                (found,) = captured.module(*self.in_order(captured, function, by_graph))
                torch.testing.assert_close(found, function(*expected))
                torch.testing.assert_close(by_graph, expected)

    def in_order(self, captured, function, tensors) -> list[torch.Tensor]:
        """The tensors as the graph's placeholders come."""
        named = dict(zip(inspect.signature(function).parameters, tensors))
        return [named[node.meta["argument"]] for node in captured.module.graph.nodes if node.op == "placeholder"]

    def test_transforms_of_functions(self):
        def summed(a, w):
            return (a @ w).tanh().sum()

        x, w = torch.randn(3, 4, 5), torch.randn(5, 6)
        normed = torch.vmap(lambda a, w: functional.layer_norm(a @ w, (6,)), in_dims=(0, None))
        for name, function in {"vmap": normed, "grad": torch.func.grad(summed),
                               "vmap of grad": torch.vmap(torch.func.grad(summed), in_dims=(0, None)),
                               "jvp": lambda x, w: torch.func.jvp(lambda a: (a @ w).tanh(), (x,), (x,))[1]}.items():
            with self.subTest(name):
                self.assertTrue(self.captures(function, x, w))
        with self.subTest("jacrev"):  # PyTorch fills a diagonal in place
            self.captures(lambda a, w: torch.func.jacrev(lambda a: (a @ w).tanh())(a), x[0], w)


class NamesTest(unittest.TestCase):
    def test_names(self):
        self.assertEqual(module_names.parameter_name("l_self_modules_a_modules_layers_modules_0_modules_norm_"
                                                     "parameters_weight_"), "a.layers.0.norm.weight")
        self.assertEqual(module_names.parameter_name("l_kwargs_input_ids_"), "")
        self.assertEqual(module_names.layer_of("model.layers.11.mlp.0"), "model.layers.11")
        self.assertEqual(module_names.pattern_of("model.layers.11"), "model.layers.*")
        for path in ("L['self']._modules['base'].layers[0].up", "L['self'].__dict__['_modules']['base'].layers[0].up"):
            node = SimpleNamespace(meta={"nn_module_stack": {"key": (path, nn.Linear)}})
            self.assertEqual(module_names.module_path(node), "base.layers.0.up")  # as peft's models have it
        self.assertEqual(importer._identifier("Größe.x"), "gr__e_x")  # names of the language are ASCII


class RegionsTest(unittest.TestCase):
    def test_the_modules_of_a_sequence_are_no_layers(self):
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))
        (piece,) = partition.partition(graph_of(model, torch.randn(2, 4)).module.graph).pieces
        self.assertEqual(piece.layer, "")

    def test_a_layer_alone_is_one_region(self):
        class Stage(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4)) for _ in range(2))

            def forward(self, x):
                first = self.layers[0](x)
                return self.layers[1](first), first

        graph = graph_of(Stage(), torch.randn(2, 4)).module.graph
        self.assertEqual([piece.layer for piece in partition.partition(graph).pieces], ["layers.0", "layers.1"])
        (piece,) = partition.partition(graph, "Stage").pieces
        self.assertEqual(piece.layer, "Stage")

    def test_equal_layers_have_equal_texts(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4))
                                            for _ in range(3))

            def forward(self, x):
                for layer in self.layers:
                    x = x + layer(x)
                return x

        captured = graph_of(Model(), torch.randn(2, 3, 4))
        pieces = partition.partition(captured.module.graph).pieces
        regions = [piece for piece in pieces if piece.is_region()]
        texts = {importer.import_region(one.nodes, one.layer, captured.names, "Model").text for one in regions}
        self.assertEqual(len(regions), 3)
        self.assertEqual(len(texts), 2, "the sum after the last layer is no layer's")


if __name__ == "__main__":
    unittest.main()
