"""Two processes under FSDP2 (fully_shard) and DistributedDataParallel, with gloo on the CPU: compiled models and
accelerated ones have the gradients of one process, and steps of the optimizer give the same weights."""

from __future__ import annotations

import copy
import functools
import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed as distributed
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import millrace.torch
from compile_backend_test import OPTIONS, Model
from millrace.torch import imported_layer
from support import TorchTest

PROCESSES = 2
STEPS = 2


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(11)
    return torch.randn(2 * PROCESSES, 3, 8), torch.randint(0, 5, (2 * PROCESSES * 3,))


def model() -> Model:
    torch.manual_seed(0)
    return Model(2)


def compiled(module: torch.nn.Module) -> torch.nn.Module:
    return torch.compile(module, backend="millrace", options=OPTIONS)


def sharded(module: torch.nn.Module) -> torch.nn.Module:
    for block in module.blocks:
        fully_shard(block)
    return fully_shard(module)


def sharded_and_accelerated(module: torch.nn.Module) -> torch.nn.Module:
    millrace.torch.accelerate(module)
    return sharded(module)


WAYS = {"DDP": lambda module: compiled(DistributedDataParallel(module)),
        "FSDP2 of accelerated layers": sharded_and_accelerated,
        "FSDP2, compiled": lambda module: compiled(sharded(module))}


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def train(module: torch.nn.Module, called, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """The gradients of the first step, and the weights after some."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    step = millrace.torch.TrainingStep(called, optimizer)
    if any(isinstance(one, DTensor) for one in module.parameters()):
        assert "sharded" in step.runs, step.runs
        try:
            millrace.torch.TrainingStep(called, optimizer, weights=torch.bfloat16)
        except ValueError as error:
            assert "MixedPrecisionPolicy" in str(error), error
        else:
            raise AssertionError("sharded weights have no copies")
    called(x, labels).backward()
    found = {f"gradient of {name}": whole(one.grad) for name, one in module.named_parameters()}
    optimizer.zero_grad()
    for _ in range(STEPS):
        step(x, labels)
    return {**found, **{name: whole(one) for name, one in module.named_parameters()}}


def work(rank: int, folder: str) -> None:
    store = distributed.FileStore(str(Path(folder, "store")), PROCESSES)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=PROCESSES)
    x, labels = batch()
    found = {}
    imported_layer.compile_graph = functools.partial(imported_layer.compile_graph, options=OPTIONS)
    for name, wrapped in WAYS.items():
        torch._dynamo.reset()
        module = model()
        found[name] = train(module, wrapped(module), x.chunk(PROCESSES)[rank], labels.chunk(PROCESSES)[rank])
    torch.save(found, Path(folder, f"found{rank}"))
    distributed.destroy_process_group()


class FsdpTest(TorchTest):
    def test_gradients_and_weights_are_those_of_one_process(self):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work, (folder,), PROCESSES)
            found = [torch.load(Path(folder, f"found{rank}")) for rank in range(PROCESSES)]
        module = model()
        expected = train(module, copy.copy(module), *batch())
        for way in WAYS:
            for name, one in expected.items():
                self.assert_close(found[0][way][name], one, f"{way}: {name}", 1e-4)
                self.assertTrue(torch.equal(found[0][way][name], found[1][way][name]), f"{way}: {name}")


if __name__ == "__main__":
    unittest.main()
