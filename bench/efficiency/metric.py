"""The paper's memory usage efficiency (MUE) of every launch, and what limits it.

MUE = Q/D · B/B̂ · 100: Q the fewest bytes, D the bytes moved, B the achieved bandwidth, B̂ the best bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass

from efficiency.launches import Launch
from efficiency.ncu import Kernel

GOOD = 70.0  # below this, held_by names the limit
COMPUTE_SHARE = 0.6  # of the flop/s of a large product
SOME_SHARE = 0.1  # kernels without products have less
LAUNCH_SECONDS = 10e-6


@dataclass(frozen=True)
class Ceilings:
    """The measured limits of the machine; None if unknown."""

    bytes_per_second: float | None = None
    flop_per_second: float | None = None


def counted_row(launch: Launch, kernels: list[Kernel], ceilings: Ceilings) -> dict:
    moved, seconds = sum(kernel.moved_bytes for kernel in kernels), sum(kernel.seconds for kernel in kernels)
    return _row(launch, moved, seconds, ceilings) | {"kernels": [kernel.name for kernel in kernels]}


def modelled_row(launch: Launch, seconds: float, ceilings: Ceilings) -> dict:
    """Without counters it is assumed that nothing moved twice."""
    return _row(launch, launch.least_bytes, seconds, ceilings)


def _row(launch: Launch, moved: float, seconds: float, ceilings: Ceilings) -> dict:
    bandwidth = moved / seconds if seconds > 0 else None
    mue = None
    if bandwidth and ceilings.bytes_per_second:
        mue = 100 * launch.least_bytes / moved * bandwidth / ceilings.bytes_per_second
    share = None
    if launch.flop and seconds > 0 and ceilings.flop_per_second:
        share = launch.flop / seconds / ceilings.flop_per_second
    return {"launch": launch.name, "pass": launch.step, "least_bytes": launch.least_bytes, "moved_bytes": moved,
            "seconds": seconds, "bytes_per_second": bandwidth, "flop": launch.flop, "share_of_product_rate": share,
            "mue": mue, "held_by": held_by(mue, share, seconds)}


def held_by(mue: float | None, share: float | None, seconds: float) -> str:
    if mue is None or mue >= GOOD:
        return ""
    if share is not None and share >= COMPUTE_SHARE:
        return "compute"
    if share is not None and share >= SOME_SHARE and seconds >= LAUNCH_SECONDS:
        return "instructions"  # attention: other instructions between its products
    return "launch" if seconds < LAUNCH_SECONDS else "memory access"


def whole_row(rows: list[dict], ceilings: Ceilings) -> dict:
    """The total over all launches."""
    flop = sum(row["flop"] or 0 for row in rows)
    whole = Launch("all", "", "", sum(row["least_bytes"] for row in rows), flop or None)
    return _row(whole, sum(row["moved_bytes"] for row in rows), sum(row["seconds"] for row in rows), ceilings)


def table(rows: list[dict]) -> str:
    def shown(value: float | None, scale: float, digits: int) -> str:
        return "-" if value is None else f"{scale * value:.{digits}f}"

    lines = [["launch", "pass", "Q MB", "D MB", "Q/D", "us", "TB/s", "flop %", "MUE", "held by"]]
    for row in rows:
        ratio = row["least_bytes"] / row["moved_bytes"] if row["moved_bytes"] else None
        lines.append([row["launch"][:44], row["pass"][:3], shown(row["least_bytes"], 1e-6, 2),
                      shown(row["moved_bytes"], 1e-6, 2), shown(ratio, 1, 2), shown(row["seconds"], 1e6, 1),
                      shown(row["bytes_per_second"], 1e-12, 2), shown(row["share_of_product_rate"], 100, 0),
                      shown(row["mue"], 1, 1), row["held_by"]])
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    def row_text(line: list[str]) -> str:
        numbers = [f"{cell:>{width}}" for cell, width in zip(line[2:-1], widths[2:-1])]
        return "  ".join([f"{line[0]:{widths[0]}}", f"{line[1]:{widths[1]}}", *numbers, line[-1]]).rstrip()

    return "\n".join(map(row_text, lines))
