"""Writes metrics of two runs to a directory, and looks at the drawing of them: metrics.py DIR [--check F.svg]."""
import json
import math
import sys
import xml.etree.ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"


def write(directory):
    for name, steps in (("a", 3000), ("b & <c>", 40)):
        with open(f"{directory}/{name}.jsonl", "w") as file:
            for step in range(1, steps + 1):
                record = {"step": step, "loss": 5 * math.exp(-step / 500) + 1, "grad_norm": 1 / step, "learning_rate": 1e-3,
                          "tokens_per_second": 4000 + step}
                if name == "a":
                    record["expert_counts"] = [[step % 7, 3, 5, 0], [4, 4, 4, 4]]
                elif step == 20:
                    record["loss"] = None  # a step whose loss was not finite
                file.write(json.dumps(record) + "\n")
                if step % 20 == 0:
                    file.write(json.dumps({"step": step, "heldout_loss": 2.5, "heldout_bytes": 100}) + "\n")
            if name == "a":
                file.write('{"step": 3001, "lo')  # still being written


def check(path):
    root = ET.parse(path).getroot()
    panels = {group.get("data-key"): group for group in root.iter(SVG + "g") if group.get("class") == "panel"}
    assert set(panels) == {"loss", "grad_norm", "learning_rate", "tokens_per_second", "busiest_expert"}, panels.keys()
    lines = {key: [line.get("points").split() for line in group.iter(SVG + "polyline")] for key, group in panels.items()}
    assert len(lines["loss"]) == 3, "the gap in b cuts its line in two"
    assert [len(line) for line in lines["loss"][1:]] == [19, 20]
    assert 500 < len(lines["loss"][0]) <= 1200, len(lines["loss"][0])
    assert len(lines["grad_norm"]) == 2 and len(lines["busiest_expert"]) == 1
    assert len(list(panels["loss"].iter(SVG + "circle"))) == 3000 // 20 + 2
    width, height = float(root.get("width")), float(root.get("height"))
    for key, group in lines.items():
        points = [tuple(map(float, point.split(","))) for line in group for point in line]
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points), key
    # The loss falls, so its line does: larger y. A constant is drawn as one.
    first = [float(point.split(",")[1]) for point in lines["loss"][0]]
    assert first[0] < first[-1]
    assert len({point.split(",")[1] for line in lines["learning_rate"] for point in line}) == 1
    cells = [group for group in root.iter(SVG + "g") if group.get("class") == "experts"]
    assert len(cells) == 1 and len(list(cells[0].iter(SVG + "rect"))) == 8
    names = [element.text for element in root.iter(SVG + "text")]
    assert any("b & <c>.jsonl" in (name or "") for name in names)
    print("drawing is right")


if __name__ == "__main__":
    check(sys.argv[3]) if "--check" in sys.argv else write(sys.argv[1])
