"""Puts a run's tables and plot into docs/."""

from pathlib import Path

from tests.bench.plot import svg
from tests.bench.results import Results

FOLDER = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- measured -->\n", "<!-- end of what was measured -->\n"


def refresh(results: Results, folder: Path = FOLDER) -> None:
    """Replaces performance.svg, and in performance.md what stands between the two marks."""
    page = folder / "performance.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{page} lacks the marks {BEGIN.strip()} and {END.strip()}")
    page.write_text(f"{before}{BEGIN}\n{results.markdown('###')}\n{END}{after}")
    (folder / "performance.svg").write_text(svg(results))
