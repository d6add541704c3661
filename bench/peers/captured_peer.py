"""A layer in PyTorch on a GPU as a contestant: forward and the training step are captured as CUDA graphs and replayed."""

from __future__ import annotations

import torch

from peers.torch_contestant import choose_attention, seconds_of_replay
from peers.torch_peer import TorchPeer

STEPS_BEFORE_CAPTURE = 5


class Cuda:
    name = "cuda"

    def synchronize(self) -> None:
        torch.cuda.synchronize()


class CapturedPeer(TorchPeer):
    """One layer with one attention (None: that of the layer), eager or compiled."""

    def __init__(self, attention, model, layer, sizes, tensors, *, dtype, dropout, compiled, device=Cuda()):
        super().__init__(attention, model, layer, sizes, tensors, device=device, dtype=dtype, dropout=dropout,
                         compiled=compiled)
        self.attention = attention
        self.graphs: list[torch.cuda.CUDAGraph] = []

    def forward(self) -> torch.Tensor:
        return self.call(self.x)

    def forward_and_backward(self) -> tuple[torch.Tensor, ...]:
        parameters = [p for p in self.layer.roles().values() if p.requires_grad]
        return torch.autograd.grad(self.forward(), [self.x, *parameters], self.result_gradient)

    def results(self) -> dict:
        choose_attention(self.attention)
        return super().results()

    def prepare(self) -> None:
        choose_attention(self.attention)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # as graph capture requires
            for _ in range(STEPS_BEFORE_CAPTURE):
                self.forward_and_backward()
        torch.cuda.current_stream().wait_stream(stream)
        for work in (self.forward, self.forward_and_backward):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                work()
            self.graphs.append(graph)

    def times(self) -> tuple[float, float]:
        """Seconds of forward and of the step."""
        forward, step = (seconds_of_replay(graph) for graph in self.graphs)
        return forward, step
