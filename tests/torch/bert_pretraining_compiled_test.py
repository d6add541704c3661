"""Runs examples/bert_pretraining with torch.compile(backend="millrace"): every layer has a plan, and the losses are
eager's but for dropout."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

import torch

import millrace.torch
from support import TorchTest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples/bert_pretraining"))
import corpus  # noqa: E402  (the path above comes first)
from batches import Batches  # noqa: E402
from lamb import Lamb  # noqa: E402
from model import SIZES, Bert  # noqa: E402
from tokenizer import Tokenizer  # noqa: E402


class BertPretrainingCompiledTest(TorchTest):
    def test_a_few_steps(self):
        documents = corpus.generate()
        tokenizer = Tokenizer.learn((line for one in documents for line in one), 200)
        batches = Batches(documents, tokenizer, 16, seed=0)
        graphs, losses = [], []

        def backend(graph, inputs):
            return millrace.torch.backend.compile_graph(graph, inputs, options={"choose": "plan"},
                                                        listener=graphs.append)

        torch._dynamo.reset()
        for compiled in (False, True):
            torch.manual_seed(0)
            model = Bert(SIZES["tiny"]._replace(dropout=0.0))
            called = torch.compile(model, backend=backend, fullgraph=True) if compiled else model
            step = millrace.torch.TrainingStep(called, Lamb(model.parameters(), lr=0.01), max_norm=1.0)
            losses.append([step(**batches.batch(8 * k, 8)).item() for k in range(4)])
        torch.testing.assert_close(*map(torch.tensor, losses), rtol=1e-4, atol=1e-4)
        self.assertEqual([graph.whole for graph in graphs], [None])
        named = {region.name: region.choice.plan for region in graphs[0].regions}
        self.assertTrue(named["layers.0"])
        self.assertEqual(named["layers.0"], named["layers.1"])


if __name__ == "__main__":
    unittest.main()
