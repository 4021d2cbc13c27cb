"""Matplotlib drawings as SVG that lives inside an HTML page: themed by CSS, with text as text, the same bytes every time."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from microcoder_core.stages.report_page.text import visible

_LEGEND_CHARS = 66
"""What one row of a legend holds, about 4 of them a line or patch."""
WIDTH_IN = 4.7
"""Inches at 72 points each. Small, so that the text stays readable where the page shows the drawing at the width of a phone."""

INK, SOFT, GRID, PAPER = "#010101", "#010102", "#010103", "#010104"
BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY, GREY = (f"#0101{number:02x}" for number in range(0x11, 0x18))
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY, GREY)
_VARIABLES = {INK: "ink", SOFT: "soft", GRID: "grid", PAPER: "paper"} | {colour: f"c{n}" for n, colour in enumerate(CYCLE, start=1)}
"""Stand-in colour -> CSS variable: the drawing takes its colours from the page, light or dark. The cycle is Okabe and Ito's,
which people with any of the common colour-vision deficiencies can tell apart."""

VERDICT_COLOURS = {
    "accepted": "#44aa99",
    "wrong_answer": "#ddcc77",
    "runtime_error": "#cc6677",
    "compile_error": "#aa4499",
    "time_limit_exceeded": "#88ccee",
    "memory_limit_exceeded": "#5566bb",
    "output_limit_exceeded": "#999933",
    "no_program": "#b4b4b4",
    "judge_error": "#882255",
}
"""Fills in Paul Tol's muted scheme (colour-blind safe), readable on light and dark paper alike."""

_STYLE = {
    "svg.fonttype": "none",  # text stays text: searchable, read aloud, in the font of the page
    "text.parse_math": False,  # a `$` in a label is a dollar
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same layout on every machine
    "font.size": 8.5,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": SOFT,
    "axes.titlecolor": SOFT,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.3,
    "legend.borderaxespad": 0.0,
    "legend.borderpad": 0.2,
    "lines.linewidth": 1.7,
    "lines.solid_capstyle": "round",
}
_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def draw_svg(name: str, label: str, draw: Callable[[Any], None], height_in: float = 2.6, width_in: float = WIDTH_IN) -> Markup:
    """The drawing that `draw` puts on a fresh figure, as an `<svg>` element.

    Args:
        name: Unique on the page; the ids of the drawing start with it.
        label: What the drawing shows, in words, for those who do not see it.
    """
    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure = Figure(figsize=(width_in, height_in), layout=ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.04, hspace=0.06, wspace=0.06))
        draw(figure)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata=_METADATA)
    return _for_page(stream.getvalue(), name, visible(label))


def legend_above(figure: Any, **options: Any) -> None:
    """One legend over all axes, at the top left, outside of the data, to be read row by row."""
    handles, labels = [], []
    for axes in figure.axes:
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            if text not in labels:
                handles.append(handle)
                labels.append(text)
    columns = len(labels) if sum(len(text) + 4 for text in labels) <= _LEGEND_CHARS else 3
    order = [index for column in range(columns) for index in range(column, len(labels), columns)]  # matplotlib fills columns
    handles, labels = [handles[index] for index in order], [labels[index] for index in order]
    if handles:
        figure.legend(handles, labels, loc="outside upper left", ncols=columns, **options)


def _for_page(svg: str, name: str, label: str) -> Markup:
    body = re.sub(r"<style[^>]*>.*?</style>|<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    body = body.replace("xlink:href", "href")
    body = _own_ids(body, name)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var(--{variable})")
    view_box = re.search(r'viewBox="[^"]+"', body)
    assert view_box, "matplotlib writes a viewBox"
    inner = body[body.index(">") + 1 :]
    head = f'<svg class="plot" id="plot-{escape(name)}" role="img" aria-label="{escape(label)}" {view_box[0]}>'
    return Markup(head + re.sub(r"\n\s*", "\n", inner).strip())


def _own_ids(body: str, name: str) -> str:
    """Keeps the ids that something refers to, under names of this drawing's own: matplotlib repeats them in every file."""
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', body))
    names = {first or second for first, second in used}
    body = re.sub(r' id="([^"]+)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in names else "", body)
    body = re.sub(r'href="#', f'href="#{name}-', body)
    return re.sub(r"url\(#", f"url(#{name}-", body)
