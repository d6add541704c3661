"""Names of modules and parameters, from what Dynamo records about them. Test: tests/torch/importer_test.py"""

from __future__ import annotations

import re

from torch import fx

_PARAMETER = re.compile(r"^l_[a-z]+_(modules_.*_)?(parameters|buffers)_(.*?)_?$")
_ROOT = re.compile(r"^L\['\w+'\]\.?")
_ITEM = re.compile(r"\.?(?:__dict__\['_modules'\]|_modules)\['([^']*)'\]|\[(\d+)\]")


def parameter_name(placeholder: str) -> str:
    """`model.layers.0.norm.weight`, from l_self_modules_model_modules_layers_modules_0_modules_norm_parameters_weight_.
    An input of the model has no such name: ""."""
    found = _PARAMETER.match(placeholder)
    if found is None:
        return ""
    modules = [part.strip("_") for part in (found[1] or "").split("modules_")]
    return ".".join([part for part in modules if part] + [found[3]])


def module_path(node: fx.Node) -> str:
    """The module that computes a node: `model.layers.0.norm`; "" if it is unknown or the model itself."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = _ROOT.sub("", list(stack.values())[-1][0])
    return ".".join(part for part in _ITEM.sub(r".\1\2", path).split(".") if part)


def layer_of(path: str) -> str:
    """The outermost numbered module on the path: `model.layers.0`; "" if there is none."""
    parts = path.split(".")
    number = next((k for k, part in enumerate(parts) if part.isdigit()), None)
    return "" if number is None else ".".join(parts[: number + 1])


def pattern_of(layer: str) -> str:
    """The name that equal layers share: `model.layers.*`."""
    return ".".join("*" if part.isdigit() else part for part in layer.split("."))


def model_name(graph: fx.Graph) -> str:
    """The class of the outermost module."""
    stacks = (node.meta.get("nn_module_stack") for node in graph.nodes)
    kinds = [kind for stack in stacks if stack for path, kind in list(stack.values())[:1] if not _ROOT.sub("", path)]
    return "a model" if not kinds else getattr(kinds[0], "__name__", str(kinds[0]).split(".")[-1])
