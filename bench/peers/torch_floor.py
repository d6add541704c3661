"""What the layer's contractions and dropouts take alone in PyTorch: the floor under its steps."""

from __future__ import annotations

import time

import torch

from peers.report import spread

REPEATS = 40


def contractions(sizes: dict[str, int]) -> list[tuple[int, int, int]]:
    """(rows, columns, summed) of the layer's dense contractions: embedding or hidden by tokens."""
    embedding, hidden, tokens = sizes["I"], sizes["U"], sizes["B"] * sizes["J"]
    return [(embedding, tokens, embedding), (hidden, tokens, embedding), (embedding, tokens, hidden)]


def seconds_of(work, device) -> dict[str, float]:
    times = []
    for repeat in range(REPEATS + 3):
        start = time.perf_counter()
        work()
        device.synchronize()
        if repeat >= 3:
            times.append(time.perf_counter() - start)
    return spread(times)


def matrix(rows: int, columns: int, transposed: str, placed: dict) -> torch.Tensor:
    return torch.randn(columns, rows, **placed).t() if transposed == "T" else torch.randn(rows, columns, **placed)


def measure_floor(sizes: dict[str, int], dropout: float, dtype: torch.dtype, device) -> dict:
    placed = {"dtype": dtype, "device": device.name}
    rows = []
    for m, n, k in contractions(sizes):
        for form in ("NN", "NT", "TN", "TT"):
            a, b = matrix(m, k, form[0], placed), matrix(k, n, form[1], placed)
            seconds = seconds_of(lambda: torch.mm(a, b), device)
            rows.append({"shape": [m, n, k], "form": form, "seconds": seconds,
                         "gflops_best": 2e-9 * m * n * k / seconds["best"],
                         "gflops_median": 2e-9 * m * n * k / seconds["median"]})
    elements = sizes["U"] * sizes["B"] * sizes["J"]
    x = torch.randn(elements, **placed)
    seconds = seconds_of(lambda: torch.nn.functional.dropout(x, dropout), device)
    return {"mm": rows, "dropout": {"elements": elements, "seconds": seconds}}


def floor_table(floor: dict) -> str:
    lines = ["torch.mm alone        form  best GF/s  median GF/s"]
    lines += [f"{'x'.join(map(str, row['shape'])):20}  {row['form']}    {row['gflops_best']:9.1f}  "
              f"{row['gflops_median']:11.1f}" for row in floor["mm"]]
    dropout = floor["dropout"]
    lines.append(f"F.dropout of {dropout['elements']} elements: best {1e3 * dropout['seconds']['best']:.2f} ms, "
                 f"median {1e3 * dropout['seconds']['median']:.2f} ms")
    return "\n".join(lines)
