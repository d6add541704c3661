import torch
import torch.nn.functional as F
from torch import einsum, tanh as th
from math import exp
import numpy as xp

A = 4


def f(x: float32[A, A]):
    a = torch.exp(x)
    b = foo.bar.relu(x)
    c = F.softmax(x, 0)
    d = einsum("ij->ji", x)
    e = th(x)
    h = exp(x)
    i = math.relu(x)
    j = xp.ma.exp(x)
    k = np.linalg.exp(x)
    l = max(x, 0)
    m = min(x)
    n = sum(x, axis=1)
    return x
