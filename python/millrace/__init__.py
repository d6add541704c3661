"""Millrace: data movement of transformer training, made visible and then made small.

`millrace.numpy` has the functions of programs, for NumPy. `analyze`, `fuse`, `optimize` and `Plan` are the library
itself; `millrace.torch` runs plans in PyTorch. What needs the library is loaded when it is first used.
"""

__version__ = "0.1.0"

_LIBRARY = {
    "MillraceError": "_library",
    "Plan": "plan",
    "analyze": "commands",
    "bench": "commands",
    "find_plan": "plan_cache",
    "fuse": "commands",
    "optimize": "commands",
}

__all__ = ["__version__", *_LIBRARY]


def __getattr__(name: str):
    if name not in _LIBRARY:
        raise AttributeError(f"module 'millrace' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"millrace.{_LIBRARY[name]}"), name)
