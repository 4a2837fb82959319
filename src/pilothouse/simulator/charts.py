"""Charts as SVG: lines and bars, drawn by hand so that a report is one file without scripts."""

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 34
_TICKS = 4


def lines(title: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]], *, x: str, y: str) -> str:
    """Curves of (x, y), each with its name; y begins at 0."""
    points = [point for _, curve in series for point in curve]
    if not points:
        return ""
    low_x, high_x = min(p[0] for p in points), max(p[0] for p in points)
    high_y = max(p[1] for p in points) or 1.0
    across, up = (WIDTH - _LEFT - _RIGHT) / ((high_x - low_x) or 1.0), (HEIGHT - _TOP - _BOTTOM) / high_y
    parts = [_axes(low_x, high_x, high_y, x, y)]
    for index, (_, curve) in enumerate(series):
        path = " ".join(f"{_LEFT + (px - low_x) * across:.1f},{HEIGHT - _BOTTOM - py * up:.1f}" for px, py in curve)
        parts.append(f'<polyline class="s{index % 6}" points="{path}"/>')
    return _figure(title, parts, [name for name, _ in series])


def bars(title: str, values: Sequence[tuple[str, float]], *, y: str) -> str:
    """One bar a name, from 0."""
    if not values:
        return ""
    high = max(value for _, value in values) or 1.0
    room = (WIDTH - _LEFT - _RIGHT) / len(values)
    parts = [_axes(None, None, high, "", y)]
    for index, (name, value) in enumerate(values):
        tall = (HEIGHT - _TOP - _BOTTOM) * value / high
        left = _LEFT + room * index
        parts.append(
            f'<rect class="bar" x="{left + room * 0.1:.1f}" y="{HEIGHT - _BOTTOM - tall:.1f}" '
            f'width="{room * 0.8:.1f}" height="{tall:.1f}"><title>{escape(name)}: {value:.4g}</title></rect>'
        )
        if len(values) <= 12:
            centre = f'x="{left + room / 2:.1f}" y="{HEIGHT - _BOTTOM + 14}" text-anchor="middle"'
            parts.append(f"<text {centre}>{escape(name)}</text>")
    return _figure(title, parts, [])


def _axes(low_x: float | None, high_x: float | None, high_y: float, x: str, y: str) -> str:
    parts = []
    for tick in range(_TICKS + 1):
        value = high_y * tick / _TICKS
        at = HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * tick / _TICKS
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    if low_x is not None and high_x is not None:
        for tick in range(_TICKS + 1):
            value = low_x + (high_x - low_x) * tick / _TICKS
            at = _LEFT + (WIDTH - _LEFT - _RIGHT) * tick / _TICKS
            parts.append(f'<text x="{at:.1f}" y="{HEIGHT - _BOTTOM + 14}" text-anchor="middle">{value:.4g}</text>')
        parts.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{escape(x)}</text>')
    parts.append(f'<text x="4" y="{HEIGHT - 4}">{escape(y)}</text>')
    return "".join(parts)


def _figure(title: str, parts: Sequence[str], names: Sequence[str]) -> str:
    legend = "".join(f'<span class="k{index % 6}">{escape(name)}</span>' for index, name in enumerate(names))
    return (
        f"<figure><figcaption>{escape(title)} {legend}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg></figure>'
    )
