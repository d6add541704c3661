"""Millrace shows the data movement of transformer training and reduces it.

`millrace.numpy` implements the functions of programs in NumPy. `analyze`, `fuse`, `optimize` and `Plan` call the
library; `millrace.torch` runs plans in PyTorch. The library is loaded on first use.
"""

__version__ = "0.1.0"

_LIBRARY = {
    "MillraceError": "_library",
    "Plan": "plan",
    "PlanTensors": "plan",
    "analyze": "commands",
    "bench": "commands",
    "export_plans": "shipped_plans",
    "find_plan": "plan_cache",
    "from_bfloat16": "half",
    "from_float16": "half",
    "fuse": "commands",
    "load_plans": "shipped_plans",
    "optimize": "commands",
    "to_bfloat16": "half",
    "to_float16": "half",
}

__all__ = ["__version__", *_LIBRARY]


def __getattr__(name: str):
    if name not in _LIBRARY:
        raise AttributeError(f"module 'millrace' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"millrace.{_LIBRARY[name]}"), name)
