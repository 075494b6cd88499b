"""What files of measured results have in common: the machine's name and tables of Markdown."""
import platform


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()


def vectors():
    """The widest vectors of this machine: what is fastest depends on them."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = {flag for line in file if line.startswith("flags") for flag in line.split(":", 1)[1].split()}
    return next((name for flag, name in (("avx512f", "avx512"), ("avx2", "avx2")) if flag in flags), platform.machine())


def table(head, rows):
    """Lines; the first column stands left, numbers right."""
    widths = [max(len(str(row[i])) for row in [head, *rows]) for i in range(len(head))]
    line = lambda row: "| " + " | ".join(f"{cell:<{w}}" if i == 0 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(row, widths))) + " |"
    ruler = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return [line(head), ruler, *map(line, rows), ""]
