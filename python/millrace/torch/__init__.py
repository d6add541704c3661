"""Millrace in PyTorch: plans as an operator, as layers, and in existing models.

    model = torch.compile(model, backend="millrace")                          # any model
    layer = millrace.torch.TransformerEncoderLayer(512, 8, batch_first=True)   # like torch.nn's
    millrace.torch.accelerate(model)                                          # replaces known layers
    attention = millrace.torch.program("attention.py")                        # any program, differentiable

docs/pytorch.md is the guide.
"""

try:
    import torch as _torch  # noqa: F401  (first, so that both use the same OpenMP)
except ImportError as error:
    raise ImportError("millrace.torch needs PyTorch 2.10 or later: pip install torch") from error

from millrace.torch.accelerate import Accelerated, accelerate
from millrace.torch import backend as _backend
from millrace.torch.attention import MultiheadAttention
from millrace.torch.backward_thread import set_backward_thread
from millrace.torch.encoder_layer import TransformerEncoderLayer
from millrace.torch.explain import Explanation, explain
from millrace.torch.plans import Ran, explore, plan_of, set_budget
from millrace.torch.program import Program, program

_backend.register()

__all__ = [
    "Accelerated",
    "Explanation",
    "MultiheadAttention",
    "Program",
    "Ran",
    "TransformerEncoderLayer",
    "accelerate",
    "explain",
    "explore",
    "plan_of",
    "program",
    "set_backward_thread",
    "set_budget",
]
