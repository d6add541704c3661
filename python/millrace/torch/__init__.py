"""Millrace in PyTorch: plans as an operator, as layers, and in existing models.

    model = torch.compile(model, backend="millrace")                          # any model
    step = millrace.torch.TrainingStep(model, optimizer, loss)                # one CUDA graph
    layer = millrace.torch.TransformerEncoderLayer(512, 8, batch_first=True)   # like torch.nn's
    millrace.torch.accelerate(model)                                          # replaces known layers
    attention = millrace.torch.program("attention.py")                        # any program, differentiable

docs/pytorch.md is the guide.
"""

try:
    import torch as _torch  # noqa: F401  (first, so that both use the same OpenMP)
except ImportError as error:
    raise ImportError("millrace.torch needs PyTorch 2.10 or later: pip install torch") from error

from millrace.shipped_plans import LoadedPlans, export_plans, load_plans
from millrace.torch.accelerate import Accelerated, accelerate
from millrace.torch import backend as _backend
from millrace.torch import flops as _flops  # noqa: F401  (declares them)
from millrace.torch.attention import MultiheadAttention
from millrace.torch.backward_thread import set_backward_thread
from millrace.torch.encoder_layer import TransformerEncoderLayer
from millrace.torch.explain import Explanation, explain
from millrace.torch.fused_loss import linear_cross_entropy
from millrace.torch.plans import Ran, explore, plan_of, set_budget
from millrace.torch.program import Program, program
from millrace.torch.training_step import TrainingStep

_backend.register()

__all__ = [
    "Accelerated",
    "Explanation",
    "LoadedPlans",
    "MultiheadAttention",
    "Program",
    "Ran",
    "TrainingStep",
    "TransformerEncoderLayer",
    "accelerate",
    "explain",
    "explore",
    "export_plans",
    "linear_cross_entropy",
    "load_plans",
    "plan_of",
    "program",
    "set_backward_thread",
    "set_budget",
]
