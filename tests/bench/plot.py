"""The results as one SVG: bars of times beside a plain file's, and what a larger store costs.

Colours follow the reader's choice of a light or a dark page. No library: it is some rectangles and lines.
"""

import math
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from tests.bench.results import Results

_WIDTH, _LEFT, _RIGHT = 860, 250, 60  # pixels: of all, of the names, of the margin for figures
_BAR, _GAP, _HEAD = 13, 4, 30
_TOP = 60
_LINES = 210  # height of the lower part
_PLAIN, _SYNCED, _POWER = "plain file", "plain file, then fsync", "power"
_LEAST = 1 / 1024  # a ratio of nothing has no place on this scale
_SCALE = "Scale: "
_LEGEND = 'Medians, and the range as a thin line; durability "power" beside a plain file and fsync.'
_CONTENDERS = ("kvtool", "casync", "borg", "restic")  # those with a colour of their own
_STYLE = """
text { font: 11px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 12px; } .note, .tick { fill: #57606a; } .tick { text-anchor: middle; }
.page { fill: #ffffff; } .grid { stroke: #d0d7de; } .one { stroke: #57606a; } .spread { stroke: #24292f; }
.kvtool { fill: #0969da; } .casync { fill: #bc7c00; } .borg { fill: #5f8f3e; } .restic { fill: #b0508f; }
.other { fill: #8c959f; } polyline { fill: none; stroke-width: 2; }
.line0 { stroke: #0969da; } .line1 { stroke: #bc7c00; } .line2 { stroke: #5f8f3e; }
.line3 { stroke: #b0508f; } .line4 { stroke: #8c959f; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .note, .tick { fill: #9198a1; } .page { fill: #0d1117; }
  .grid { stroke: #30363d; } .one { stroke: #9198a1; } .spread { stroke: #e6edf3; }
  .kvtool { fill: #4493f8; } .line0 { stroke: #4493f8; }
}
"""

Bar = tuple[str, float, float, float]  # who, and the ratio to the plain file: median, least, most


def svg(results: "Results") -> str:
    """The plot as text; the same for the same results."""
    groups = {case: bars for case in results.values if (bars := _bars(results, case))}
    ratios = [ratio for bars in groups.values() for _, *three in bars for ratio in three] + [1.0]
    # Whole powers of two around all of them.
    low, high = math.floor(math.log2(min(ratios))), math.ceil(math.log2(max(ratios) * 1.05))
    lines = [case for case in results.values if case.startswith(_SCALE)]
    bars_end = _TOP + 4 + sum(_HEAD + len(bars) * (_BAR + _GAP) for bars in groups.values())
    height = bars_end + 30 + (_LINES + 60 if lines else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>kvtool measured</title><style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
        _text(12, 20, "Time beside a plain file's (1 = as long; shorter bars are better)", "title"),
        _text(12, 36, f"{results.machine}.", "note"),
        _text(12, 50, _LEGEND, "note"),
        *_bar_chart(groups, low, high, bars_end),
    ]
    if lines:
        parts += _line_chart(results, lines, bars_end + 50)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bars(results: "Results", case: str) -> list[Bar]:
    """Everybody's times over the plain file's median; who syncs is compared with who syncs."""
    named = results.values[case]
    if results.units[case] != "s" or _PLAIN not in named:
        return []
    bars = []
    for name, values in named.items():
        if name not in {_PLAIN, _SYNCED}:
            plain = named.get(_SYNCED if _POWER in name else _PLAIN, named[_PLAIN])
            base = statistics.median(plain) or math.inf
            three = (statistics.median(values), min(values), max(values))
            middle, least, most = (max(value / base, _LEAST) for value in three)
            bars.append((name, middle, least, most))
    return bars


def _bar_chart(groups: dict[str, list[Bar]], low: int, high: int, end: int) -> Iterator[str]:
    def x(ratio: float) -> float:
        share = (math.log2(ratio) - low) / max(1, high - low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    for power in range(low, high + 1):
        at = x(2.0**power)
        yield _line(at, _TOP, at, end, "one" if power == 0 else "grid")
        yield _text(at, end + 14, f"{2.0**power:g}", "tick")
    y = _TOP
    for case, bars in groups.items():
        y += _HEAD
        yield _text(12, y - 6, case, "title")
        for name, middle, least, most in bars:
            left, right = sorted((x(1), x(middle)))
            colour = name.partition(",")[0] if name.startswith(_CONTENDERS) else "other"
            yield _text(24, y + 10, name, "name")
            place = f'x="{left:.1f}" y="{y}" width="{right - left:.1f}" height="{_BAR}"'
            yield f'<rect class="{colour}" {place}/>'
            yield _line(x(least), y + _BAR / 2, x(most), y + _BAR / 2, "spread")
            yield _text(max(x(most), x(1)) + 5, y + 10, f"{middle:.2f}", "figure")
            y += _BAR + _GAP


def _line_chart(results: "Results", cases: list[str], top: int) -> Iterator[str]:
    """Each case's medians beside its first: over stores of increasing size."""
    names = list(results.values[cases[0]])
    curves = {}
    for case in cases:
        medians = [statistics.median(values) for values in results.values[case].values()]
        curves[case] = [(median / (medians[0] or math.inf), median) for median in medians]
    most = max(2.0, math.ceil(max(ratio for curve in curves.values() for ratio, _ in curve)))
    step = (_WIDTH - _LEFT - 200) / max(1, len(names) - 1)
    yield _text(12, top, "What a larger store costs, beside the smallest", "title")
    bottom = top + 20 + _LINES

    def y(ratio: float) -> float:
        return bottom - ratio / most * _LINES

    for tick in range(int(most) + 1):
        yield _line(
            60, y(tick), _LEFT - 190 + step * (len(names) - 1), y(tick), "one" if tick == 1 else "grid"
        )
        yield _text(45, y(tick) + 4, f"{tick}", "tick")
    for at, name in enumerate(names):
        yield _text(60 + step * at, bottom + 16, name, "tick")
    # The curves' names stand beside their ends, in their order and not over each other.
    label = math.inf
    for number, case in sorted(enumerate(cases), key=lambda each: curves[each[1]][-1][0]):
        curve = curves[case]
        points = " ".join(f"{60 + step * at:.1f},{y(ratio):.1f}" for at, (ratio, _) in enumerate(curve))
        yield f'<polyline class="line{number % 5}" points="{points}"/>'
        label = min(y(curve[-1][0]) + 4, label - 14)
        end = 60 + step * (len(curve) - 1)
        yield _line(end + 8, label - 4, end + 22, label - 4, f"line{number % 5}")
        seconds = f"{curve[0][1]:.3g} s, then {curve[-1][1]:.3g} s"
        yield _text(end + 28, label, f"{case.removeprefix(_SCALE)}: {seconds}", "name")


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
