"""Two processes under DistributedDataParallel, with gloo on the CPU."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed as distributed
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import millrace.torch
from support import TorchTest, pair

PROCESSES = 2


def step(module, x) -> dict[str, torch.Tensor]:
    module(x).square().mean().backward()
    return {name: parameter.grad.clone() for name, parameter in module.named_parameters()}


def batch() -> torch.Tensor:
    torch.manual_seed(11)
    return torch.randn(2 * PROCESSES, 5, 8)


def work(rank: int, folder: str) -> None:
    store = distributed.FileStore(str(Path(folder, "store")), PROCESSES)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=PROCESSES)
    ours, _ = pair(8, 2, 12, dropout=0.0, batch_first=True)
    gradients = step(DistributedDataParallel(ours), batch().chunk(PROCESSES)[rank])
    torch.save(gradients, Path(folder, f"gradients{rank}"))
    distributed.destroy_process_group()


def work_in_steps(rank: int, folder: str) -> None:
    """Two batches for each step of the optimizer, of which the second exchanges gradients."""
    store = distributed.FileStore(str(Path(folder, "store")), PROCESSES)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=PROCESSES)
    ours, _ = pair(8, 2, 12, dropout=0.0, batch_first=True)
    exchanges = []
    model = DistributedDataParallel(ours)
    model.register_comm_hook(exchanges, _counted)
    step = train(model, batch().chunk(PROCESSES)[rank].chunk(2))
    assert "the weights are on cpu" in step.runs, step.runs
    torch.save((ours.state_dict(), len(exchanges)), Path(folder, f"weights{rank}"))
    distributed.destroy_process_group()


def _counted(exchanges, bucket):  # PyTorch refuses annotations that are text
    exchanges.append(bucket.index())
    return allreduce_hook(distributed.group.WORLD, bucket)


def train(model, batches) -> millrace.torch.TrainingStep:
    step = millrace.torch.TrainingStep(model, torch.optim.SGD(model.parameters(), lr=0.5),
                                       lambda model, x: model(x).square().mean(), accumulate=len(batches))
    for x in batches:
        step(x)
    return step


class DdpTest(TorchTest):
    def test_training_steps_are_those_of_one_process(self):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work_in_steps, (folder,), PROCESSES)
            found = [torch.load(Path(folder, f"weights{rank}")) for rank in range(PROCESSES)]
        expected, _ = pair(8, 2, 12, dropout=0.0, batch_first=True)
        train(expected, [batch()])
        self.assertEqual([exchanges for _, exchanges in found], [1, 1])
        for weights, _ in found:
            torch.testing.assert_close(weights, expected.state_dict(), rtol=1e-5, atol=1e-6)

    def test_gradients_are_those_of_one_process(self):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work, (folder,), PROCESSES)
            found = [torch.load(Path(folder, f"gradients{rank}")) for rank in range(PROCESSES)]
        expected = step(pair(8, 2, 12, dropout=0.0, batch_first=True)[0], batch())
        scale = max(gradient.abs().max().item() for gradient in expected.values())
        for name, gradient in expected.items():
            self.assertTrue(torch.equal(found[0][f"module.{name}"], found[1][f"module.{name}"]), name)
            self.assertLess((found[0][f"module.{name}"] - gradient).abs().max().item(), 1e-5 * scale, name)


if __name__ == "__main__":
    unittest.main()
