"""Runs examples/bert_pretraining at a tiny size: the loss falls, a resumed run has the same bits, two processes train,
and the tokenizer and the batches are what they say."""

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

from support import TorchTest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/bert_pretraining"
sys.path.insert(0, str(EXAMPLE))
import corpus  # noqa: E402  (the path above comes first)
import pretrain  # noqa: E402
from batches import IGNORED, Batches  # noqa: E402
from lamb import Lamb  # noqa: E402
from model import SIZES, Bert  # noqa: E402
from tokenizer import CLS, MASK, PAD, SEP, UNKNOWN, Tokenizer  # noqa: E402


class BertPretrainingTest(TorchTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name)

    def pretrain(self, *options, out=None):
        with contextlib.redirect_stdout(io.StringIO()):
            return pretrain.main(["--out", str(out or self.out), "--backend", "eager", "--batch", "8", "--device",
                                  "cpu", *map(str, options)])

    def test_both_phases(self):
        first = self.pretrain("--steps", 60, "--lr", 0.02)
        self.assertLess(sum(first.losses[-10:]) / 10, sum(first.losses[:10]) / 10 - 0.5)
        second = self.pretrain("--phase", 2, "--steps", 5, "--accumulate", 2, "--pack", 2)
        self.assertLess(second.losses[0], first.losses[0])
        for name in ("phase1.svg", "phase2.svg"):
            xml.etree.ElementTree.parse(self.out / name)

    def test_a_resumed_run_has_the_same_bits(self):
        for optimizer in ("lamb", "adamw"):
            whole = self.pretrain("--steps", 6, "--optimizer", optimizer, out=self.out / optimizer / "whole")
            parts = self.out / optimizer / "parts"
            self.pretrain("--steps", 3, "--schedule", 6, "--optimizer", optimizer, out=parts)
            resumed = self.pretrain("--steps", 6, "--optimizer", optimizer, "--resume", out=parts)
            self.assertEqual(resumed.losses, whole.losses)
            torch.testing.assert_close(resumed.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)
            torch.testing.assert_close(resumed.optimizer.state_dict(), whole.optimizer.state_dict(), rtol=0, atol=0)

    def test_text_files_and_missing_checkpoints(self):
        (self.out / "text").write_text("The wheel turns.\nThe stones grind.\n\nRain falls.\nThe river rises.\n")
        self.assertEqual(len(self.pretrain("--text", self.out / "text", "--steps", 2).losses), 2)
        with self.assertRaisesRegex(SystemExit, "there is no .*phase1.pt; run what writes it first"):
            self.pretrain("--phase", 2, out=self.out / "empty")

    def test_two_processes(self):
        """Both train, and only one writes."""
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                               "2", str(EXAMPLE / "pretrain.py"), "--out", str(self.out), "--backend", "eager",
                               "--steps", "3", "--device", "cpu", "--accumulate", "2"], capture_output=True, text=True,
                              timeout=300, env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertEqual(done.stdout.count("after 3 steps"), 1)
        self.assertTrue((self.out / "phase1.pt").exists())


class PartsTest(TorchTest):
    def test_the_tokenizer(self):
        made = Tokenizer.learn(["low lower lowest", "new newer newest", "low"], 30)
        self.assertEqual([made.pieces[k] for k in made.ids("Low newest")][0], "low")
        self.assertEqual("".join(made.pieces[k].removeprefix("##") for k in made.ids("lowest newer")), "lowestnewer")
        self.assertEqual(made.ids("zebra"), [UNKNOWN])
        self.assertLessEqual(len(made.pieces), 30)

    def test_batches(self):
        documents = corpus.generate()
        tokenizer = Tokenizer.learn((line for one in documents for line in one), 200)
        batches = Batches(documents, tokenizer, 32, seed=1)
        one, same = batches.batch(4, 3), batches.batch(0, 7)
        for name, tensor in one.items():
            self.assertTrue(torch.equal(tensor, same[name][4:]), name)
        many = batches.batch(0, 200)
        counted = many["labels"] != IGNORED
        masked = many["ids"].gather(1, many["positions"])[counted]
        self.assertAlmostEqual((masked == MASK).float().mean().item(), 0.8, delta=0.05)
        self.assertFalse(torch.isin(many["labels"][counted], torch.tensor([PAD, CLS, SEP])).any())
        self.assertAlmostEqual(many["is_next"].float().mean().item(), 0.5, delta=0.12)
        self.assertTrue((many["ids"][~many["pairs"]] == PAD).all())
        self.assertTrue(((many["ids"] == SEP).sum(1) == 2).all())

    def test_packed_pairs_do_not_see_each_other(self):
        """A sequence of two pairs has the loss of two sequences of one pair each."""
        documents = corpus.generate()
        tokenizer = Tokenizer.learn((line for one in documents for line in one), 200)
        packed = Batches(documents, tokenizer, 33, seed=1, packed=2).batch(0, 4)  # one token is left over
        model = Bert(SIZES["tiny"]).eval()
        apart = {name: packed[name][:, :32].unflatten(1, (2, 16)).flatten(0, 1)
                 for name in ("ids", "segments", "places", "pairs")}
        apart["pairs"] = apart["pairs"] > 0
        apart["starts"] = torch.zeros(8, 1, dtype=torch.int64)
        apart["is_next"] = packed["is_next"].reshape(8, 1)
        apart["labels"] = packed["labels"].reshape(8, -1)
        apart["positions"] = packed["positions"].reshape(8, -1) % 16
        self.assertGreater(packed["pairs"].max(), 1)
        torch.testing.assert_close(model(**packed), model(**apart), rtol=1e-5, atol=1e-5)

    def test_lamb(self):
        """One step by hand."""
        weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        optimizer = Lamb([weight], lr=0.1, weight_decay=0.5)
        weight.grad = torch.tensor([2.0, -1.0])
        update = torch.tensor([1.0, -1.0]) + 0.5 * torch.tensor([3.0, 4.0])
        expected = weight.detach() - 0.1 * update * 5 / update.norm()
        optimizer.step()
        torch.testing.assert_close(weight.detach(), expected, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
