"""Measures this GPU's limits in PyTorch: bytes/s of a large copy, flop/s of a large product.

A separate script, because it needs a Python with torch: `ceilings.py DTYPE` prints JSON.
"""

from __future__ import annotations

import json
import statistics
import sys

COPIED_ELEMENTS = 1 << 30  # far larger than the cache
PRODUCT_SIZE = 8192
REPEATS = 15


def median_seconds(torch, work) -> float:
    times = []
    for repeat in range(REPEATS + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        if repeat >= 3:  # the first three are warm-up
            times.append(1e-3 * begin.elapsed_time(end))
    return statistics.median(times)


def measure(dtype: str) -> dict:
    import torch

    source = torch.empty(COPIED_ELEMENTS, dtype=torch.float16, device="cuda").normal_()
    target = torch.empty_like(source)
    copy = median_seconds(torch, lambda: target.copy_(source))
    a, b = (torch.randn(PRODUCT_SIZE, PRODUCT_SIZE, device="cuda").to(getattr(torch, dtype)) for _ in range(2))
    product = median_seconds(torch, lambda: a @ b)
    return {"bytes_per_second": 2 * source.numel() * source.element_size() / copy,
            "flop_per_second": 2 * PRODUCT_SIZE**3 / product, "gpu": torch.cuda.get_device_name()}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
