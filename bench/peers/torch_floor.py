"""Times the layer's contractions and dropout alone in PyTorch: a lower bound for its steps."""

from __future__ import annotations

import functools
import time

import torch

from peers.report import spread

REPEATS = 40


def contractions(sizes: dict[str, int]) -> list[tuple[int, int, int]]:
    """(rows, columns, summed) of the layer's dense contractions: embedding or hidden by tokens."""
    embedding, hidden, tokens = sizes["I"], sizes["U"], sizes["B"] * sizes["J"]
    return [(embedding, tokens, embedding), (hidden, tokens, embedding), (embedding, tokens, hidden)]


def seconds_of(works: dict, device) -> dict:
    """The times of each of the works, which take turns like the layers."""
    times = {key: [] for key in works}
    for repeat in range(REPEATS + 1):
        for key, work in works.items():
            work()  # warms the caches
            device.synchronize()
            start = time.perf_counter()
            work()
            device.synchronize()
            if repeat > 0:
                times[key].append(time.perf_counter() - start)
    return {key: spread(taken) for key, taken in times.items()}


def matrix(rows: int, columns: int, transposed: str, placed: dict) -> torch.Tensor:
    return torch.randn(columns, rows, **placed).t() if transposed == "T" else torch.randn(rows, columns, **placed)


def measure_floor(sizes: dict[str, int], dropout: float, dtype: torch.dtype, device) -> dict:
    placed = {"dtype": dtype, "device": device.name}
    works = {}
    for m, n, k in contractions(sizes):
        for form in ("NN", "NT", "TN", "TT"):
            operands = matrix(m, k, form[0], placed), matrix(k, n, form[1], placed)
            works[m, n, k, form] = functools.partial(torch.mm, *operands)
    elements = sizes["U"] * sizes["B"] * sizes["J"]
    works["dropout"] = functools.partial(torch.nn.functional.dropout, torch.randn(elements, **placed), dropout)
    seconds = seconds_of(works, device)
    dropout_seconds = seconds.pop("dropout")
    rows = [{"shape": [m, n, k], "form": form, "seconds": taken,
             "gflops_best": 2e-9 * m * n * k / taken["best"], "gflops_median": 2e-9 * m * n * k / taken["median"]}
            for (m, n, k, form), taken in seconds.items()]
    return {"mm": rows, "dropout": {"elements": elements, "seconds": dropout_seconds}}


def floor_table(floor: dict) -> str:
    lines = ["torch.mm alone        form  best GF/s  median GF/s"]
    lines += [f"{'x'.join(map(str, row['shape'])):20}  {row['form']}    {row['gflops_best']:9.1f}  "
              f"{row['gflops_median']:11.1f}" for row in floor["mm"]]
    dropout = floor["dropout"]
    lines.append(f"F.dropout of {dropout['elements']} elements: best {1e3 * dropout['seconds']['best']:.2f} ms, "
                 f"median {1e3 * dropout['seconds']['median']:.2f} ms")
    return "\n".join(lines)
