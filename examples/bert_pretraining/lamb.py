"""LAMB: AdamW whose update of each weight is scaled by the ratio of the weight's norm to the update's. Runs inside CUDA
graphs (`capturable`): it reads no number from the GPU."""

from __future__ import annotations

import torch


class Lamb(torch.optim.Optimizer):
    """Parameters without weight decay, as biases, are not scaled."""

    def __init__(self, parameters, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6,
                 weight_decay: float = 0.01, capturable: bool = False):
        super().__init__(parameters, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                                          capturable=capturable))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._step(group, weights)

    def _step(self, group: dict, weights: list[torch.Tensor]) -> None:
        states = [self._state(weight) for weight in weights]
        means, squares, steps = ([state[name] for state in states] for name in ("mean", "square", "step"))
        gradients = [weight.grad for weight in weights]
        first, second = group["betas"]
        torch._foreach_add_(steps, 1)
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
        for weight, mean, square, step in zip(weights, means, squares, steps):
            update = mean / (1 - first**step) / ((square / (1 - second**step)).sqrt() + group["eps"])
            if group["weight_decay"]:
                update += group["weight_decay"] * weight
                update *= _ratio(weight, update)
            weight -= group["lr"] * update

    def _state(self, weight: torch.Tensor) -> dict:
        state = self.state[weight]
        if not state:
            state.update(step=torch.zeros((), device=weight.device), mean=torch.zeros_like(weight),
                         square=torch.zeros_like(weight))
        return state


def _ratio(weight: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    of_weight, of_update = weight.norm(), update.norm()
    return torch.where((of_weight > 0) & (of_update > 0), of_weight / of_update, torch.ones_like(of_weight))
