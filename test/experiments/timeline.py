"""A step as it was planned above the step as it ran, one row per stream, as SVG. Colours are layers; light is the backward."""
import html
import re

COLORS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb8844", "#7788cc"]
LEFT, WIDTH, ROW, GAP = 150, 1000, 26, 10


def planned_events(trace):
    """(stream, name, begin, end) in seconds of the Chrome trace that braid-plan writes."""
    streams = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
    return [(streams.get(e["tid"], str(e["tid"])), e["name"], e["ts"] * 1e-6, (e["ts"] + e["dur"]) * 1e-6)
            for e in trace["traceEvents"] if e["ph"] == "X"]


def fill(name):
    layer = re.search(r"(?:layers?[. ]|^[A-Z]+)(\d+)", name)
    color = COLORS[int(layer.group(1)) % len(COLORS)] if layer else "#999999"
    return f'fill="{color}"' + (' fill-opacity="0.55"' if ".grad" in name else "")


def rows_of(label, events):
    streams = sorted({e[0] for e in events}, key=lambda name: (name != "compute", name))
    return [(f"{label} {stream}", [e for e in events if e[0] == stream]) for stream in streams]


def overlay(title, planned_trace, actual):
    planned = planned_events(planned_trace)
    rows = rows_of("planned", planned) + rows_of("actual", actual)
    length = max(e[3] for _, events in rows for e in events)
    height = 60 + len(rows) * (ROW + GAP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height}" font-family="sans-serif" font-size="12">',
             f'<rect width="100%" height="100%" fill="white"/><text x="10" y="20" font-size="14">{html.escape(title)}</text>']
    for index, (label, events) in enumerate(rows):
        y = 34 + index * (ROW + GAP)
        parts.append(f'<text x="10" y="{y + ROW / 2 + 4}">{html.escape(label)}</text>')
        for _, name, begin, end in events:
            x, width = LEFT + WIDTH * begin / length, max(WIDTH * (end - begin) / length, 0.2)
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.2f}" height="{ROW}" {fill(name)}>'
                         f"<title>{html.escape(name)}: {begin * 1e3:.2f} to {end * 1e3:.2f} ms</title></rect>")
    parts.append(f'<text x="{LEFT}" y="{height - 8}">0</text><text x="{LEFT + WIDTH}" y="{height - 8}" text-anchor="end">'
                 f"{length * 1e3:.0f} ms</text></svg>")
    return "\n".join(parts) + "\n"
