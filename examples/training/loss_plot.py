"""The loss of each step as an SVG picture."""

from __future__ import annotations

import math
from pathlib import Path

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 360, 56, 40, 24


def write(losses: list[float], file: Path, title: str) -> None:
    known = [(k, loss) for k, loss in enumerate(losses) if math.isfinite(loss)]
    low, high = (min(loss for _, loss in known), max(loss for _, loss in known)) if known else (0.0, 1.0)
    high = high if high > low else low + 1
    points = " ".join(f"{_x(k, len(losses)):.1f},{_y(loss, low, high):.1f}" for k, loss in known)
    marks = "".join(f'<text x="{_LEFT - 6}" y="{_y(value, low, high) + 4:.1f}" text-anchor="end">{value:.3g}</text>'
                    for value in (low, (low + high) / 2, high))
    file.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
        f'<text x="{_WIDTH / 2}" y="16" text-anchor="middle">{title}</text>{marks}'
        f'<path d="M{_LEFT},{_TOP} V{_HEIGHT - _BOTTOM} H{_WIDTH - 10}" fill="none" stroke="black"/>'
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 10}" text-anchor="middle">step (1 to {len(losses)})</text>'
        f'<polyline points="{points}" fill="none" stroke="#1f77b4" stroke-width="1.5"/></svg>\n')


def _x(k: int, count: int) -> float:
    return _LEFT + (_WIDTH - 10 - _LEFT) * (k / max(1, count - 1))


def _y(loss: float, low: float, high: float) -> float:
    return _TOP + (_HEIGHT - _BOTTOM - _TOP) * (high - loss) / (high - low)
