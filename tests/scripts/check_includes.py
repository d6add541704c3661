#!/usr/bin/env python3
"""Enforces the include table of docs/ARCHITECTURE.md: check_includes.py [ROOT].

Prints `file:line: message` for every #include that the table does not allow, and exits with 1 if there are any.
"""

import pathlib
import re
import sys

# Folder of src/ -> the folders it may include, besides base and itself.
FOLDERS = {
    "base": set(),
    "ir": set(),
    "frontend": {"ir"},
    "autodiff": {"ir"},
    "analysis": {"ir"},
    "reference": {"ir"},
    "fusion": {"ir", "analysis"},
    "candidates": {"ir", "analysis"},
    "codegen": {"ir"},
    "device": set(),
    "oracle": {"ir", "device"},
    "measure": {"ir", "codegen", "device", "reference", "oracle"},
    "select": set(),
    "plan": {"ir", "candidates", "codegen"},
    "exec": {"ir", "device"},
    "report": {"ir"},
}
DRIVER = "driver"  # may include everything

# Stage -> the one header of it that later stages may include.
ARTEFACTS = {
    "autodiff": "autodiff/training_graph.h",
    "fusion": "fusion/fused_graph.h",
    "candidates": "candidates/candidates.h",
    "measure": "measure/measurements.h",
    "select": "select/selection.h",
    "plan": "plan/plan.h",
    "analysis": "analysis/analysis.h",
    "device": "device/launch.h",
}
EVERY_STAGE = set(ARTEFACTS) - {"device"}

# Folder of src/ -> the stages whose artefact, and nothing else of them, it may include.
ARTEFACTS_OF = {
    "analysis": {"autodiff"},
    "fusion": {"autodiff"},
    "candidates": {"autodiff", "fusion"},
    "codegen": {"fusion", "candidates", "device"},
    "measure": {"candidates"},
    "select": EVERY_STAGE,
    "plan": EVERY_STAGE | {"device"},
    "exec": {"plan"},
    "report": EVERY_STAGE,
}

PUBLIC = "millrace"
PUBLIC_FOR_ALL = "millrace/result.h"  # public, but part of base: every stage returns a Result
USERS_OF_THE_API = ("include", "tools", "bindings", "examples")

CUDA_HEADER = re.compile(r"^(cuda|cublas|nvrtc|cupti|curand|cudnn|nvml)[\w/]*(\.h|\.hpp|\.cuh)$")
CUDA_FOLDERS = ("src/device/cuda/", "src/codegen/prelude/")

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
SUFFIXES = {".h", ".hpp", ".inc", ".cpp", ".cc", ".cu", ".cuh"}


def complaint(file, quoted, header):
    """Why `file` (a path from the root) may not include `header`, or None when it may."""
    if CUDA_HEADER.match(header):
        if file.startswith(CUDA_FOLDERS):
            return None
        return f"CUDA header {header} outside {' and '.join(CUDA_FOLDERS)}"

    target = header.split("/")[0] if "/" in header else ""
    if target == "tools" and file.startswith("tools/"):
        return None
    if target == "" and quoted and file.startswith("bindings/torch/"):
        return None  # next to it: users compile this folder by itself
    ours = target in FOLDERS or target in (DRIVER, PUBLIC)
    if not ours and not quoted:
        return None  # the system's
    if not ours:
        return f'"{header}" is in no folder of the table; write the path from src/ or include/, others\' headers in <>'

    top, *folders = file.split("/")
    if top in USERS_OF_THE_API:
        if top == "tools" and target == "base":
            return None  # the program's own texts
        return None if target == PUBLIC else f'{top}/ may include only "millrace/...", not "{header}"'

    folder = folders[0] if len(folders) > 1 else ""
    if folder == DRIVER:
        return None
    if target == PUBLIC:
        return None if header == PUBLIC_FOR_ALL else f'of the public API, {folder}/ may include only "{PUBLIC_FOR_ALL}"'
    if target in FOLDERS[folder] | {"base", folder}:
        return None
    if target in ARTEFACTS_OF.get(folder, set()):
        artefact = ARTEFACTS[target]
        return None if header == artefact else f'of {target}/, {folder}/ may include only "{artefact}", not "{header}"'
    return f'{folder}/ may not include "{header}"'


def complaints(root):
    for top in ("src",) + USERS_OF_THE_API:
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            file = path.relative_to(root).as_posix()
            if top == "src":
                folder = file.split("/")[1]
                if folder not in FOLDERS and folder != DRIVER:
                    yield f"{file}:1: src/{folder} is not in the table"
                    continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                include = INCLUDE.match(line)
                reason = complaint(file, include[1] == '"', include[2]) if include else None
                if reason:
                    yield f"{file}:{number}: {reason}"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    found = list(complaints(root))
    print("\n".join(found) if found else "every #include is one that the table allows")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
