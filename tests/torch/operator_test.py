"""Tests the operators, and programs as functions."""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import torch

import millrace
import millrace.torch
from millrace import _library
from millrace.torch import build, operator
from support import TorchTest

SMALL = """
B = 3
I = 4
O = 5

def layer(x: float64[B, I], w: float64[O, I], b: float64[O], mask: fixed.float64[O], s: float64):
    y = np.einsum("bi,oi->bo", x, w) + b
    z = softmax(dropout(relu(y * s), 0.25) + mask)
    return z, np.sum(y, axis=0)
"""


class SmallProgram(TorchTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "small.py"
        self.path.write_text(SMALL)
        self.program = millrace.torch.program(self.path)
        double = dict(dtype=torch.float64)
        self.tensors = [torch.randn(3, 4, **double), torch.randn(5, 4, **double), torch.randn(5, **double),
                        torch.randn(5, **double)]
        for tensor in self.tensors[:3]:
            tensor.requires_grad_()
        self.program(*self.tensors, 0.5)
        self.plan = millrace.find_plan(SMALL, {"B": 3, "I": 4, "O": 5}, "float64", threads=torch.get_num_threads(),
                                       name="small")
        self.random = torch.tensor([7, 3])

class OperatorTest(SmallProgram):
    def forward(self, **changes):
        given = dict(plan=self.plan, tensors=self.tensors, pieces=[1] * 4, numbers=[0.5], random=self.random) | changes
        return torch.ops.millrace.forward(*given.values())

    def test_opcheck(self):
        given = (self.plan, self.tensors, [1] * 4, [0.5], self.random)
        torch.library.opcheck(torch.ops.millrace.forward.default, given)
        results, saved = self.forward()
        kept = [tensor.detach() for tensor, info in zip(self.tensors, operator.plan_at(self.plan).arguments)
                if info.read_by_backward]
        kept += [result.detach() for result, info in zip(results, operator.plan_at(self.plan).results)
                 if info.read_by_backward]
        ranks, sizes = [t.dim() for t in self.tensors], [n for t in self.tensors for n in t.shape]
        gradients = [torch.randn_like(result) for result in results]
        torch.library.opcheck(torch.ops.millrace.backward.default,
                              (self.plan, gradients, kept, saved, [1] * 4, ranks, sizes, [0.5], self.random))

    def test_gradcheck(self):
        self.assertTrue(torch.autograd.gradcheck(lambda *given: self.forward(tensors=[*given, self.tensors[3]])[0],
                                                 self.tensors[:3]))

    def test_results_without_a_gradient_count_as_zero(self):
        whole = torch.autograd.grad(self.program(*self.tensors, s=0.5)[1].sum(), self.tensors[:3], allow_unused=True)
        self.assert_close(whole[2], torch.full((5,), 3.0, dtype=torch.float64))

    def test_integers_and_booleans_have_no_gradient(self):
        text = ('V = 7\nE = 4\nB = 5\n\ndef f(table: float64[V, E], ids: int64[B], kinds: int32[B], kept: bool_[B]):\n'
                '    rows = np.where(kept[:, None] & (kinds[:, None] < 2), table[ids], 0.25)\n    return rows * rows\n')
        path = self.folder / "embedding.py"
        path.write_text(text)
        table = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
        ids, kinds = torch.tensor([6, 0, 6, 2, 6]), torch.tensor([0, 1, 1, 3, 0], dtype=torch.int32)
        kept = torch.tensor([True, True, False, True, True])
        y = millrace.torch.program(path)(table, ids, kinds, kept)
        expected = torch.where((kept & (kinds < 2))[:, None], table[ids], 0.25) ** 2
        self.assert_close(y, expected)
        given = torch.randn(5, 4, dtype=torch.float64)
        self.assert_close(torch.autograd.grad(y, table, given)[0], torch.autograd.grad(expected, table, given)[0])

    def test_pieces_of_one_tensor(self):
        text = 'B = 3\nI = 4\n\ndef f(x: float64[B, I], w: float64[I], v: float64[I]):\n    return x * w + v\n'
        plan = millrace.find_plan(text, {}, "float64", threads=1)
        both = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
        x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        ((y,), _) = torch.ops.millrace.forward(plan, [x, both], [1, 2], [], None)
        expected = x * both[0] + both[1]
        self.assert_close(y, expected)
        y.backward(x.detach())
        theirs = torch.autograd.grad(expected, both, x.detach())[0]
        self.assert_close(both.grad, theirs)

    def refuses(self, what, **changes):
        with self.assertRaisesRegex(RuntimeError, what):
            self.forward(**changes)

    def test_wrong_use_is_refused(self):
        x, w, b, mask = self.tensors
        self.refuses("'x' has the type Float where the plan has Double; convert it", tensors=[x.float(), w, b, mask])
        self.refuses("'x' is not contiguous", tensors=[torch.randn(4, 3, dtype=torch.float64).t(), w, b, mask])
        self.refuses("'b' is not contiguous", tensors=[x, w, b[:1].expand(5), mask])
        self.refuses("'x' has 16 elements where the plan", tensors=[torch.randn(4, 4, dtype=torch.float64), w, b, mask])
        self.refuses("'mask' is missing", tensors=[x, w, b], pieces=[1] * 3)
        self.refuses("more tensors than", tensors=[x, w, b, mask, b], pieces=[1] * 5)
        self.refuses("a tensor without pieces", pieces=[1, 1, 1, 0])
        self.refuses("4 tensors, but 3 piece counts", pieces=[1] * 3)
        self.refuses("the number 's' is missing", numbers=[])
        self.refuses("2 numbers where the plan has 1", numbers=[1.0, 2.0])
        self.refuses("'random' must hold a seed and a step", random=torch.tensor([1]))
        self.refuses("'random' has the type", random=torch.tensor([1.0, 2.0]))
        self.refuses("/nowhere", plan="/nowhere")
        with self.assertRaises(NotImplementedError):
            self.forward(tensors=[tensor.to("meta") for tensor in self.tensors[:1]] + [torch.eye(2).to_sparse()])

    def test_backward_takes_its_own_forwards_memory(self):
        results, saved = self.forward()
        with self.assertRaisesRegex(RuntimeError, "'saved' belongs to another plan"):
            torch.ops.millrace.backward(self.plan, [r.detach() for r in results], self._kept(results),
                                        torch.empty(3, dtype=torch.uint8), [1] * 4, [2, 2, 1, 1], [3, 4, 5, 4, 5, 5],
                                        [0.5], self.random)
        with self.assertRaisesRegex(RuntimeError, "fewer tensors were kept"):
            torch.ops.millrace.backward(self.plan, [r.detach() for r in results], [], saved, [1] * 4, [2, 2, 1, 1],
                                        [3, 4, 5, 4, 5, 5], [0.5], self.random)
        with self.assertRaisesRegex(RuntimeError, "elements where the plan"):
            torch.ops.millrace.backward(self.plan, [r.detach() for r in results], self._kept(results), saved, [1] * 4,
                                        [2, 2, 1, 1], [3, 4, 5, 5, 5, 5], [0.5], self.random)

    def _kept(self, results):
        plan = operator.plan_at(self.plan)
        return [tensor.detach() for tensor, info in zip([*self.tensors, *results], [
            *(info for info in plan.arguments if not info.scalar), *plan.results]) if info.read_by_backward]

    def test_second_derivatives_are_refused(self):
        y = self.program(*self.tensors, 0.5)[0].sum()
        (gradient,) = torch.autograd.grad(y, self.tensors[0], create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "no second derivatives"):
            gradient.sum().backward()

    def test_a_damaged_plan_is_refused(self):
        copy = self.folder / "plan"
        copy.mkdir(mode=0o700)
        text = Path(self.plan, "plan.json").read_text()
        (copy / "plan.json").write_text(text.replace('"date": "2', '"date": "3'))
        self.refuses("the plan was changed after it was written", plan=str(copy))


class BuildTest(unittest.TestCase):
    def test_a_compiler_that_brings_its_own_runtime_does_not_link_it(self):
        with tempfile.TemporaryDirectory() as folder:
            compiler, made = Path(folder, "c++"), Path(folder, "made.so")
            compiler.write_text('#!/bin/sh\nexec "${REAL_CXX:-g++}" "$@" -static-libstdc++\n')
            compiler.chmod(0o700)
            source, include = build._sources()
            with unittest.mock.patch.dict(os.environ, CXX=str(compiler), REAL_CXX=os.environ.get("CXX") or "g++"):
                build._compile(source, include, _library.library_path(), made)
            needed = subprocess.run(["readelf", "-d", made], capture_output=True, text=True, check=True).stdout
            self.assertIn("[libstdc++.so.6]", needed)


class ProgramTest(SmallProgram):
    def test_sizes_follow_from_shapes(self):
        x = torch.randn(2, 6)
        z, y = self.program(x, torch.ones(3, 6), torch.zeros(3), mask=torch.zeros(3), s=1.0)
        self.assertEqual((z.shape, z.dtype), ((2, 3), torch.float32))
        self.assert_close(y, x.sum().expand(3), tolerance=1e-4)

    def test_wrong_calls_say_what_is_right(self):
        x, w, b, mask = self.tensors
        for given, named, error, what in (
            ((x, w, b, mask), {}, TypeError, "s is missing"),
            ((x, w, b, mask, 1.0, 2.0), {}, TypeError, "6 arguments"),
            ((x, w, b, mask), {"t": 1.0}, TypeError, "unexpected argument t"),
            ((1.0, w, b, mask, 1.0), {}, TypeError, "x is a tensor"),
            ((x[0], w, b, mask, 1.0), {}, ValueError, r"x is \[4\]"),
            ((x, w[:4], b, mask, 1.0), {}, ValueError, r"b is \[5\] where O is 4"),
            ((x.int(), w.int(), b.int(), mask.int(), 1.0), {}, millrace.MillraceError, "int32"),
        ):
            with self.assertRaisesRegex(error, what):
                self.program(*given, **named)

    def test_numbers_have_no_gradient(self):
        for number in (torch.tensor(0.5, requires_grad=True), torch.tensor(0.5).requires_grad_() * 2):
            with self.assertRaisesRegex(TypeError, r"small\.py: s is a number, which has no gradient; pass s\.detach"):
                self.program(*self.tensors, number)
        self.program(*self.tensors, torch.tensor(0.5))
        for wrong in ("half", torch.ones(2), [1.0]):
            with self.assertRaisesRegex(TypeError, r"small\.py: s is a number, not"):
                self.program(*self.tensors, wrong)

    def test_tensors_that_no_plan_takes(self):
        x, w, b, mask = (tensor.detach() for tensor in self.tensors)
        for given, what in (
            ((x.to("meta"), w, b, mask), "small.py: x is on meta; plans run on the CPU"),
            ((x, w, b.to("meta"), mask), "small.py: b is on meta"),
            ((x[:0], w, b, mask), r"small.py: x is \[0, 4\], which is empty"),
            ((x.to_sparse(), w, b, mask), r"small.py: x is torch.sparse_coo; plans take dense tensors: x.to_dense\(\)"),
            ((x, w, b.to_sparse(), mask), "small.py: b is torch.sparse_coo"),
            ((x[0], w, b, mask), r"small.py: x is \[4\]"),
            ((x, w[:4], b, mask), r"small.py: b is \[5\] where O is 4"),
            ((x, w.float(), b, mask), r"small.py: w is torch.float32 and x is torch.float64.*w.to\(torch.float64\)"),
        ):
            with self.assertRaisesRegex(ValueError, what):
                self.program(*given, 0.5)

    def test_constants_and_arguments_by_name(self):
        self.path.write_text("A = 3\n\ndef f(x: float64[A], n: int = 3, *, s: float64):\n    return x * n * s\n")
        x = torch.randn(3, dtype=torch.float64)
        self.assert_close(millrace.torch.program(self.path)(x, s=0.5), x * 1.5)

    def test_wrong_programs_say_where(self):
        self.path.write_text("def f(x: float32[3]):\n    return np.sort(x)\n")
        with self.assertRaisesRegex(millrace.MillraceError, r"small\.py:2:12"):
            millrace.torch.program(self.path)(torch.ones(3))


if __name__ == "__main__":
    unittest.main()
