"""How the temperature was chosen: diversity over the grid, and its trend over pilot updates."""

from __future__ import annotations

from typing import Any

from microcoder_core.stages.report_page.canvas import BLUE, CYCLE, GREEN, INK, ORANGE, SOFT, draw_svg, legend_above
from microcoder_core.stages.report_page.figures import Plot
from microcoder_core.stages.report_page.text import degrees, number
from microcoder_core.stages.results import ProbeResult


def probe_plots(probe: ProbeResult | None) -> list[Plot]:
    """The grid and the pilots."""
    return [_grid_plot(probe), _pilot_plot(probe)]


def _grid_plot(probe: ProbeResult | None) -> Plot:
    name, title = "probe-grid", "Diversity by temperature"
    note = "The model before training, sampled at each temperature of the grid."
    if probe is None or not probe.grid:
        return Plot(name, title, note, None, ["temperature grid"])
    grid = sorted(probe.grid, key=lambda point: point.temperature)
    chosen = probe.temperature

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        at = [point.temperature for point in grid]
        axes.axvline(chosen, color=SOFT, linewidth=1.2, label=f"chosen {degrees(chosen)}")
        axes.plot(at, [point.diversity for point in grid], "o-", color=BLUE, markersize=4, label="diversity")
        axes.plot(at, [point.distinct_programs_frac for point in grid], "s--", color=GREEN, markersize=3.5, label="distinct programs")
        axes.plot(at, [point.pass_at_1 for point in grid], "^-", color=ORANGE, markersize=4, label="pass@1")
        axes.set(xlabel="temperature", ylim=(0, 1.03))
        legend_above(figure)

    spoken = "; ".join(f"at {degrees(point.temperature)} {number(point.diversity)}, pass@1 {number(point.pass_at_1)}" for point in grid)
    return Plot(name, title, note, draw_svg(name, f"{title}, chosen {degrees(chosen)}: {spoken}.", draw))


def _pilot_plot(probe: ProbeResult | None) -> Plot:
    name, title = "probe-pilots", "Diversity over pilot updates"
    note = "Solid: the diversity holds at this temperature. Dashed: it drifts or swings."
    if probe is None or not probe.pilots:
        return Plot(name, title, note, None, ["pilot updates"])
    pilots = sorted(probe.pilots, key=lambda pilot: pilot.temperature)
    chosen = probe.temperature

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number_, pilot in enumerate(pilots):
            width, edge = (2.6, INK) if pilot.temperature == chosen else (1.4, "none")
            axes.plot(
                range(len(pilot.diversity)),
                pilot.diversity,
                "o-" if pilot.holds else "o--",
                color=CYCLE[number_ % len(CYCLE)],
                linewidth=width,
                markersize=4.5,
                markeredgecolor=edge,
                label=f"T {degrees(pilot.temperature)}" + (" (chosen)" if pilot.temperature == chosen else ""),
            )
        axes.set_xlabel("updates")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylim(0, 1.03)
        legend_above(figure)

    spoken = "; ".join(f"at {degrees(pilot.temperature)} it {'holds' if pilot.holds else 'does not hold'}" for pilot in pilots)
    return Plot(name, title, note, draw_svg(name, f"{title}: {spoken}.", draw))
