"""Runs examples/llama_finetuning at a tiny size: the loss falls, a resumed run has the same bits, adapters train alone,
two processes train, packed conversations do not see each other, and with plans the losses are eager's."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

import torch

import millrace.torch
from support import TorchTest

try:
    import transformers
except ImportError:
    transformers = None

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES / "llama_finetuning"), str(EXAMPLES / "training")]
import conversations  # noqa: E402  (the paths above come first)
from answers import IGNORED, Batches, byte_ids  # noqa: E402

if transformers is not None:
    import finetune
    from tuned import Tuned, llama


@unittest.skipIf(transformers is None, "transformers is not installed")
class LlamaFinetuningTest(TorchTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name)

    def finetune(self, *options, out=None):
        with contextlib.redirect_stdout(io.StringIO()):
            return finetune.main(["--out", str(out or self.out), "--backend", "eager", "--device", "cpu", "--lr",
                                  "0.01", *map(str, options)])

    def test_the_loss_falls_and_a_resumed_run_has_the_same_bits(self):
        whole = self.finetune("--steps", 40, "--pack", out=self.out / "whole")
        self.assertLess(sum(whole.losses[-5:]) / 5, sum(whole.losses[:5]) / 5 - 1.5)
        parts = self.out / "parts"
        self.finetune("--steps", 20, "--schedule", 40, "--pack", out=parts)
        resumed = self.finetune("--steps", 40, "--pack", "--resume", out=parts)
        self.assertEqual(resumed.losses, whole.losses)
        torch.testing.assert_close(resumed.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)
        xml.etree.ElementTree.parse(parts / "tuned.svg")

    def test_adapters_train_alone(self):
        before = llama("tiny", None)  # other random weights are drawn for adapters after these
        run = self.finetune("--steps", 20, "--rank", 2)
        kept = torch.load(self.out / "tuned.pt")["model"]
        self.assertTrue(all(".up." in name or ".down." in name for name in kept))
        self.assertEqual(len(kept), 2 * 2 * 2)
        self.assertEqual(len(before.state_dict()), len(run.model.state_dict()) - len(kept))
        self.assertTrue(all(one.grad is None for one in run.model.parameters() if not one.requires_grad))
        resumed = self.finetune("--steps", 22, "--rank", 2, "--resume")
        self.assertEqual(resumed.losses[:20], run.losses)

    def test_files(self):
        file = self.out / "data"
        file.write_text('{"prompt": "a", "answer": "b"}\n\n{"prompt": "c", "answer": "d"}\n')
        self.assertEqual(len(self.finetune("--data", file, "--steps", 2).losses), 2)
        file.write_text('{"prompt": "a"}\n')
        with self.assertRaisesRegex(SystemExit, "data:1: expected"):
            self.finetune("--data", file)
        with self.assertRaisesRegex(SystemExit, "there is no .*tuned.pt"):
            self.finetune("--resume", out=self.out / "empty")

    def test_packed_conversations_do_not_see_each_other(self):
        batches = Batches(conversations.generate(20), 24, seed=1, packed=True)
        packed = batches.batch(0, 3)
        model = Tuned(llama("tiny", None)).eval()
        whole = model(**packed) * (packed["labels"] != IGNORED).sum()
        total = torch.zeros(())
        for row in range(3):
            for number in range(1, int(packed["conversations"][row].max()) + 1):
                mine = packed["conversations"][row] == number
                one = {name: packed[name][row][mine][None] for name in ("ids", "labels")}
                if (one["labels"] != IGNORED).any():
                    total = total + model(**one) * (one["labels"] != IGNORED).sum()
        self.assertGreater(packed["conversations"].max(), 1)
        torch.testing.assert_close(whole, total, rtol=1e-5, atol=1e-5)

    def test_answers_alone_count(self):
        batches = Batches([conversations.Conversation("1+2=", "3")], 8, seed=0)
        given = batches.batch(0, 1)
        self.assertEqual(given["ids"][0].tolist(), [*byte_ids("1+2=3"), 0, 0, 0])
        self.assertEqual(given["labels"][0].tolist(), [IGNORED] * 3 + [ord("3"), 0] + [IGNORED] * 3)

    def test_two_processes(self):
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                               str(EXAMPLES / "llama_finetuning/finetune.py"), "--out", str(self.out), "--backend",
                               "eager", "--steps", "3", "--device", "cpu"], capture_output=True, text=True, timeout=300,
                              env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertEqual(done.stdout.count("after 3 steps"), 1)

    def test_with_plans(self):
        graphs = []

        def backend(graph, inputs):
            return millrace.torch.backend.compile_graph(graph, inputs, options={"choose": "plan"},
                                                        listener=graphs.append)

        batches = Batches(conversations.generate(), 16, seed=0, packed=True)
        torch._dynamo.reset()
        losses = []
        for compiled in (False, True):
            torch.manual_seed(0)
            model = Tuned(llama("tiny", None), rank=2).train()
            called = torch.compile(model, backend=backend, fullgraph=True) if compiled else model
            optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.01)
            step = millrace.torch.TrainingStep(called, optimizer, max_norm=1.0)
            losses.append([step(**batches.batch(4 * k, 4)).item() for k in range(4)])
        torch.testing.assert_close(*map(torch.tensor, losses), rtol=1e-4, atol=1e-4)
        self.assertEqual([graph.whole for graph in graphs], [None])
        layers = [region for region in graphs[0].regions if region.name.startswith("llama.model.layers.")]
        self.assertEqual(len(layers), 2)
        self.assertTrue(all(region.choice.plan for region in layers))
        self.assertIn("fixed.float32", layers[1].program.text)


if __name__ == "__main__":
    unittest.main()
