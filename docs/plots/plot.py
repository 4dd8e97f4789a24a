#!/usr/bin/env python3
"""docs/plots/plot.py [--check]: draws each *.json of this folder as an SVG of the same name.

With --check it writes nothing, and fails when an SVG is not what its JSON gives or when a plotted number does not stand
in docs/performance.md. Python's standard library is enough.

A file holds one plot: `kind` is "bars" (each bar a share of its own limit) or "lines"; every series names the commit,
date, device and command that its numbers come from. Those end up in the SVG's <desc>.
"""
import json
import pathlib
import re
import sys
from xml.sax.saxutils import escape

WIDTH = 800
RIGHT_OF_LINES = 206  # room for the names at the right ends of lines

LIGHT = {"first": "#0f766e", "second": "#c2410c", "third": "#6d28d9", "fourth": "#1d4ed8", "limit": "#57606a"}
DARK = {"first": "#2dd4bf", "second": "#fb923c", "third": "#c4b5fd", "fourth": "#7cb0ff", "limit": "#9198a1"}


def style():
    def rules(ink, dim, grid, paper, colours):
        lines = [f".paper{{fill:{paper}}}", f"text{{fill:{ink}}}", f".dim{{fill:{dim}}}", f".grid{{stroke:{grid}}}",
                 f".track{{fill:{grid}}}"]
        for name, colour in colours.items():
            lines.append(f".{name}{{stroke:{colour};fill:{colour}}}")
            lines.append(f"text.{name}{{stroke:none;fill:{colour}}}")
        lines.append(f"text.on{{fill:{paper}}}")  # on a bar
        return "".join(lines)

    return ("text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}"
            ".title{font-size:15px;font-weight:600}.line{fill:none;stroke-width:2.2;stroke-linejoin:round}"
            ".grid{stroke-width:1}.dashed{stroke-dasharray:5 4}.bar{stroke:none}"
            + rules("#1f2328", "#57606a", "#d8dee4", "#ffffff", LIGHT)
            + "@media(prefers-color-scheme:dark){" + rules("#e6edf3", "#9198a1", "#30363d", "#0d1117", DARK) + "}")


def number(value):
    return f"{value:,.0f}" if value >= 200 else f"{value:g}"


def text(x, y, words, css="", anchor="start", extra=""):
    css = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{css} text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def line(x1, y1, x2, y2, css):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{css}"/>'


def bars(plot):
    left, top, thick, gap = 180, 78, 20, 16
    right = WIDTH - 180
    series = {one["name"]: one for one in plot["series"]}
    out, x = [], left
    for one in plot["series"]:  # the legend
        out.append(f'<rect x="{x}" y="45" width="12" height="12" rx="2" class="bar {one["colour"]}"/>')
        out.append(text(x + 18, 56, one["name"]))
        x += 40 + 8 * len(one["name"])
    body, y = [], top
    for group in plot["groups"]:
        height = len(group["bars"]) * (thick + 4) - 4
        body.append(text(left - 12, y + height / 2 + 5, group["name"], anchor="end"))
        for bar in group["bars"]:
            share = bar["value"] / bar["limit"]
            length = share * (right - left)
            colour = series[bar["series"]]["colour"]
            body.append(f'<rect x="{left}" y="{y}" width="{right - left}" height="{thick}" rx="2" class="track"/>')
            body.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{thick}" rx="2" class="bar {colour}"/>')
            label = f'{number(bar["value"])} tok/s, {100 * share:.0f} %'
            if share > 0.6:
                body.append(text(left + length - 8, y + 15, label, "on", "end"))
            else:
                body.append(text(left + length + 8, y + 15, label))
            body.append(text(right + 10, y + 15, f'limit {number(bar["limit"])} tok/s', "dim"))
            y += thick + 4
        y += gap
    bottom = y - gap + 8
    for tick in range(0, plot["x"]["max"] + 1, 20):
        x = left + (right - left) * tick / plot["x"]["max"]
        out.append(line(x, bottom, x, bottom + 5, "grid"))
        out.append(text(x, bottom + 20, f"{tick}", "dim", "middle"))
    out.append(text((left + right) / 2, bottom + 42, plot["x"]["label"], "dim", "middle"))
    return out + body, bottom + 58


def lines(plot):
    left, right, top, bottom = 64, WIDTH - RIGHT_OF_LINES, 54, 400
    x_axis, y_axis = plot["x"], plot["y"]

    def across(value):
        return left + (right - left) * (value - x_axis["min"]) / (x_axis["max"] - x_axis["min"])

    def up(value):
        return bottom - (bottom - top) * value / y_axis["max"]

    out = []
    for tick in y_axis["ticks"]:
        out.append(line(left, up(tick), right, up(tick), "grid"))
        out.append(text(left - 10, up(tick) + 4, f"{tick}", "dim", "end"))
    for tick in x_axis["ticks"]:
        out.append(line(across(tick), bottom, across(tick), bottom + 5, "grid"))
        out.append(text(across(tick), bottom + 20, f"{tick:,}", "dim", "middle"))
    out.append(text((left + right) / 2, bottom + 44, x_axis["label"], "dim", "middle"))
    middle = (top + bottom) / 2
    out.append(text(20, middle, y_axis["label"], "dim", "middle", f' transform="rotate(-90 20 {middle:.1f})"'))
    labels = []
    for one in plot["series"]:
        places = [(across(x), up(y)) for x, y in one["points"]]
        css = f'line {one["colour"]}' + (" dashed" if one.get("dashed") else "")
        out.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}" class="{css}" '
                   'style="fill:none"/>')
        if not one.get("plain"):
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" class="{one["colour"]}"/>' for x, y in places]
        labels.append([places[-1][1] + (20 if one.get("name_below") else 4), places[-1][0] + 10, one])
    labels.sort(key=lambda label: label[0])
    for above, label in zip(labels, labels[1:]):  # names keep their distance where their lines end close together
        if abs(above[1] - label[1]) < 120:
            label[0] = max(label[0], above[0] + 17)
    for y, x, one in labels:
        last = one["points"][-1][1]
        out.append(text(x, y, f'{one["name"]}: {last:.{2 if last < 10 else 1}f}', one["colour"]))
    return out, bottom + 60


def draw(plot):
    body, height = {"bars": bars, "lines": lines}[plot["kind"]](plot)
    sources = "\n".join(" | ".join(filter(None, (one["name"], one["commit"], one["date"], one["device"],
                                                 one["command"]))) for one in plot["series"])
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img">',
        f'<title>{escape(plot["title"])}</title>', f"<desc>{escape(sources)}</desc>", f"<style>{style()}</style>",
        f'<rect width="{WIDTH}" height="{height:.0f}" rx="8" class="paper"/>', text(24, 29, plot["title"], "title"),
        *body, "</svg>", ""])


def measured(plot):
    """The numbers of a plot that somebody measured, as docs/performance.md writes them."""
    values = [bar["value"] for group in plot.get("groups", []) for bar in group["bars"]]
    values += [y for one in plot["series"] if one["command"] != "computed" for _, y in one.get("points", [])]
    return [(number(value), f"{value:.2f}") for value in values]


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit("usage: plot.py [--check]")
    folder = pathlib.Path(__file__).resolve().parent
    files = sorted(folder.glob("*.json"))
    stale = [] if files else ["no *.json beside plot.py"]
    page = folder.parent / "performance.md"
    numbers = set(re.findall(r"[0-9][0-9,.]*[0-9]|[0-9]", page.read_text(encoding="utf-8")))
    for file in files:
        picture = file.with_suffix(".svg")
        plot = json.loads(file.read_text(encoding="utf-8"))
        svg = draw(plot)
        if not check:
            picture.write_text(svg, encoding="utf-8")
        elif not picture.exists() or picture.read_text(encoding="utf-8") != svg:
            stale.append(f"{picture.name} is not what {file.name} gives; renew it: python3 docs/plots/plot.py")
        if check:
            stale += [f"{file.name} plots {forms[0]}, which does not stand in docs/{page.name}"
                      for forms in measured(plot) if numbers.isdisjoint(forms)]
    stale += [f"{picture.name} has no JSON" for picture in sorted(folder.glob("*.svg"))
              if not picture.with_suffix(".json").exists()]
    if check and not stale:
        print(f"{len(files)} plots are what their JSON gives")
    sys.exit("\n".join(stale) or 0)


if __name__ == "__main__":
    main()
