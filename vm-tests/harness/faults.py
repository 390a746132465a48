"""The table of faults that administrators meet, `faults.tsv`: the page for them has it, and tests play each row."""

import csv
import re
from dataclasses import dataclass

from .paths import CHECKOUT, TESTS

TABLE, PAGE = CHECKOUT / "vm-tests/faults.tsv", CHECKOUT / "docs/troubleshoot.md"
HEAD = ("symptom", "command", "what it names", "next step")
# So many faults are told in one command, at least.
FEWEST = 60
# Where tests of the agent and of the controllers are.
SUITES = (CHECKOUT / "tests", CHECKOUT / "src", CHECKOUT / "core", CHECKOUT / "controller")


@dataclass(frozen=True)
class Row:
    """One fault. Each word between backticks in its cause and its next step is in what the command prints."""

    fault: str
    symptom: str
    command: str
    cause: str
    next: str
    state: str
    then: str
    test: str

    def words(self):
        """Returns what the command prints, among others."""
        return quoted(f"{self.cause} {self.next}")

    def causes(self):
        """Returns the words of the cause."""
        return quoted(self.cause)

    @property
    def reason(self):
        """Returns the reason that is told with a state."""
        return self.words()[0]


def quoted(text):
    """Returns the parts of a text between backticks."""
    return re.findall(r"`([^`]+)`", text)


def rows():
    """Reads the table."""
    with open(TABLE, encoding="utf-8", newline="") as file:
        return [Row(**row) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def page(all_rows):
    """Returns the lines of the table on the page."""
    lines = [HEAD, ("---",) * len(HEAD), *((row.symptom, f"`{row.command}`", row.cause, row.next) for row in all_rows)]
    return ["| " + " | ".join(cells) + " |" if cells[0] != "---" else "|---" * len(HEAD) + "|" for cells in lines]


def wrong(all_rows):
    """Returns what is wrong with the table: the page has another one, a name comes twice, a test is not there."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("\n## Faults\n")[2].partition("\n## ")[0]
    shown, expected = [line for line in section.splitlines() if line.startswith("|")], page(all_rows)
    found = [f"on the page, and not in the table: {line}" for line in shown if line not in expected]
    found += [f"not on the page: {line}" for line in expected if line not in shown]
    if not found and shown != expected:
        found.append("the page has the rows in another order")
    names = [row.fault for row in all_rows]
    found += [f"twice: {name}" for name in set(names) if names.count(name) > 1]
    if len(all_rows) < FEWEST:
        found.append(f"{len(all_rows)} rows of at least {FEWEST}")
    return found + [f"{row.fault}: {row.test} does not look for {row.words()}" for row in all_rows if not is_played(row)]


def is_played(row):
    """Says whether the test that a row names plays it: it looks for each of its words, or has the table's row printed."""
    suite, _, name = row.test.rpartition(" ")
    if not suite:
        source = TESTS / f"{name}.py"
        return source.exists() and (name == "night_faults" or f'"{row.fault}"' in source.read_text())
    module, _, function = name.rpartition("::")
    files = [path for base in SUITES for path in base.rglob(f"{module.rpartition('::')[2]}.rs")]
    return any(all(word in body_of(function, path.read_text()) for word in row.words()) for path in files)


def body_of(function, source):
    """Returns the text of a function of Rust, or nothing."""
    found = re.search(rf"\n( *)(?:async )?fn {function}\(.*?\n\1}}\n", source, re.DOTALL)
    return found[0] if found else ""


def printed(test, fault):
    """Looks that the one command of a row prints its words."""
    row = next(row for row in rows() if row.fault == fault)
    text = test.machine.run("sh", "-c", f"{row.command} 2>&1 || true")
    test.same(f"{fault}: words that are missing of {text}", [word for word in row.words() if word not in text], [])


if __name__ == "__main__":
    print("\n".join(page(rows())))
