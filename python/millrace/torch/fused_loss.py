"""The last projection and the cross entropy in one function: a few rows of the logits exist at a time, and their
gradients are computed in the same pass. Test: tests/torch/fused_loss_test.py"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_ELEMENTS = 1 << 25  # of the logits that exist at a time
_FEWEST_ROWS = 128
_REDUCTIONS = ("mean", "sum")


def linear_cross_entropy(x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None, *,
                         ignore_index: int = -100, reduction: str = "mean", rows: int | None = None) -> Tensor:
    """cross_entropy(linear(x, weight, bias), target), with only a few rows of the logits in memory at a time.

    `x` is [..., features], `weight` [classes, features], `target` [...] with class numbers; rows whose target is
    `ignore_index` do not count. `rows`: rows of logits at a time. The logits have the type of `x`, their sums are
    float32 (float64 for float64).
    """
    if reduction not in _REDUCTIONS:
        raise ValueError(f"linear_cross_entropy: reduction is 'mean' or 'sum', not {reduction!r}")
    if x.shape[:-1] != target.shape or weight.dim() != 2 or weight.shape[1] != x.shape[-1]:
        raise ValueError(f"linear_cross_entropy: x is {list(x.shape)}, weight {list(weight.shape)} and target "
                         f"{list(target.shape)}; expected [..., I], [C, I] and [...]")
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    rows = rows or max(_FEWEST_ROWS, _ELEMENTS // weight.shape[0])
    wants = [torch.is_grad_enabled() and one is not None and one.requires_grad for one in (x, weight, bias)]
    return _linear_cross_entropy(x.reshape(-1, x.shape[-1]), weight, bias, target.reshape(-1), ignore_index, reduction,
                                 rows, wants)[0]


@torch.library.custom_op("millrace::linear_cross_entropy", mutates_args=())
def _linear_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, ignore_index: int,
                          reduction: str, rows: int, wants: list[bool]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss, and the gradients of x, weight and bias for a loss whose own gradient is one; empty if not wanted."""
    kept = target != ignore_index
    target = target.where(kept, 0)
    sums = torch.float64 if x.dtype == torch.float64 else torch.float32
    count = kept.sum().to(sums) if reduction == "mean" else torch.ones((), dtype=sums, device=x.device)
    share = kept.to(sums) / count  # of each row in the loss
    share = share.where(kept, 0)
    total = torch.zeros((), dtype=sums, device=x.device)
    d_x, d_weight, d_bias = _gradients(x, weight, bias, wants, sums)
    for begin in range(0, x.shape[0], rows):
        part = slice(begin, begin + rows)
        logits = functional.linear(x[part], weight, bias)
        logs = functional.log_softmax(logits, -1, dtype=sums)
        chosen = logs.gather(1, target[part, None])
        total -= chosen.squeeze(1).where(kept[part], 0).sum()
        if not any(wants):
            continue
        shares = logs.exp_().scatter_add_(1, target[part, None], -torch.ones_like(chosen))
        d_logits = torch.mul(shares, share[part, None], out=logits)
        if wants[0]:
            torch.mm(d_logits, weight, out=d_x[part])
        if wants[1]:
            d_weight += d_logits.T @ x[part]
        if wants[2]:
            d_bias += d_logits.sum(0, dtype=sums)
    loss = (total / count).to(x.dtype if x.dtype == torch.float64 else torch.float32)
    return loss, d_x, d_weight.to(weight.dtype), d_bias.to(x.dtype)


def _gradients(x: Tensor, weight: Tensor, bias: Tensor | None, wants: list[bool],
               sums: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    return (x.new_empty(x.shape if wants[0] else 0),
            x.new_zeros(weight.shape if wants[1] else 0, dtype=sums),
            x.new_zeros(bias.shape if wants[2] and bias is not None else 0, dtype=sums))


@_linear_cross_entropy.register_fake
def _(x, weight, bias, target, ignore_index, reduction, rows, wants):
    loss = x.new_empty((), dtype=x.dtype if x.dtype == torch.float64 else torch.float32)
    d_x, d_weight, d_bias = _gradients(x, weight, bias, wants, loss.dtype)
    return loss, d_x, d_weight.to(weight.dtype), d_bias.to(x.dtype)


def _keep(ctx, inputs, output) -> None:
    ctx.set_materialize_grads(False)  # the gradients' own gradients would be large zeros
    ctx.wants = inputs[-1]
    ctx.save_for_backward(*output[1:])


def _differentiate(ctx, d_loss, *second):
    if any(one is not None for one in second):
        raise RuntimeError("millrace: linear_cross_entropy has no second derivatives; use PyTorch's cross_entropy")
    made = [(gradient * d_loss).to(gradient.dtype) if wanted and d_loss is not None else None
            for gradient, wanted in zip(ctx.saved_tensors, ctx.wants)]
    return *made, None, None, None, None, None


_linear_cross_entropy.register_autograd(_differentiate, setup_context=_keep)
