"""What a series is told in: a line for each cut, a table at the end."""

import statistics

from .disk import Unmountable

COLUMNS = ("method", "file system", "update", "phase", "cuts", "disk old", "between", "new", "at once", "retry", "mixed", "hands",
           "other", "apart", "median s")
# What is counted apart: see Unmountable.
APART = Unmountable.kind


def line(result):
    """Returns the line of one cut."""
    cut = f"{result['method']} {result['number']:>4} {result['update']:<6} cut at {result['at']:>7} in {result['phase']:<12}"
    if result.get("lost"):
        cut += f" {result['lost']} pages lost"
    if "wrong" in result:
        how = "apart " if is_apart(result) else "failed"
        return f"{how}  {cut} {result['why']}" + (f"\n  kept: {result['kept']}" if "kept" in result else "")
    how = "at once" if result["boots"] == 1 else f"after {result['boots']} boots"
    return (f"ok      {cut} files {result['files']:<7} image {result['booted']}  "
            f"Done {how} in {result['seconds']:.1f} s, cycle {result['cycle']:.1f} s")


def is_apart(result):
    """Says whether a cut left something that is no fault of the agent, whatever it does: only where writes were lost."""
    return result.get("wrong") == APART and bool(result.get("lost"))


def row(words, group):
    """Returns the cells of some cuts."""
    good = [result for result in group if "wrong" not in result]
    bad = [result["wrong"] for result in group if "wrong" in result]
    came = [sum(result["files"] == word for result in good) for word in ("old", "between", "new")]
    once = sum(result["boots"] == 1 for result in good)
    known = [bad.count("mixed"), bad.count("hands")]
    apart = sum(map(is_apart, group))
    median = f"{statistics.median(result['seconds'] for result in good):.1f}" if good else "-"
    return [*words, len(group), *came, once, len(good) - once, *known, len(bad) - sum(known) - apart, apart, median]


def rows_of(results):
    """Returns a row for each method, file system, update and phase."""
    groups = {}
    for result in results:
        # Logs of the first series don't say it.
        key = (result["method"], result.get("file system", "ext4"), result["update"], result["phase"])
        groups.setdefault(key, []).append(result)
    return [row(key, group) for key, group in sorted(groups.items())]


def csv(results, series):
    """Returns the lines of docs/power-cuts.csv of a series."""
    return "\n".join(",".join(map(str, (series, *cells))) for cells in rows_of(results))


def table(results):
    """Returns the table, as Markdown: by method, update and phase, and in all."""
    rows = rows_of(results)
    rows.append(row(("all", "", "", ""), results))
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in lines)
