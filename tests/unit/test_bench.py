"""What the benchmark makes of its values, and that its large stores are ones that kvtool takes for sound."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from kvtool.core import chunker
from kvtool.core.chunker import ChunkSizes
from kvtool.store import check, recover
from kvtool.store.layout import Layout
from tests.bench import bench, docs, plot, scale
from tests.bench.results import Results, cpu_of
from tests.bench.steps import measure, measure_warm, shuffled
from tests.stores import layout_in
from tests.synth import random_bytes

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def results() -> Results:
    found = Results(machine="a <machine>")
    for name, values in (
        ("plain file", [1, 2, 3]),
        ("kvtool", [4, 8]),
        ('kvtool, durability "power"', [8]),
        ("plain file, then fsync", [4]),
        ("odd & <new>", [0.5]),
    ):
        for value in values:
            found.add("Save", name, value)
    found.add(cpu_of("Save"), "kvtool", 1.5, "s/GB")
    for case in ("Scale: open", "Scale: start"):
        for name, value in (("1 GB", 0.5), ("10 GB", 0.6), ("100 GB", 1.5)):
            found.add(case, name, value)
    found.ratio("a ratio", ("Save", "kvtool"), ("Save", "plain file"), 2, at_least=False)
    found.note("a note")
    return found


def shown(root: ET.Element, kind: str) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text") if text.get("class") == kind]


def test_the_plot(results: Results) -> None:
    root = ET.fromstring(plot.svg(results))  # noqa: S314 - our own
    assert shown(root, "figure") == ["3.00", "2.00", "0.25"]  # "power" is beside the fsync
    bars = [bar for bar in root.iter(f"{SVG}rect") if bar.get("class") != "page"]
    assert [bar.get("class") for bar in bars] == ["kvtool", "kvtool", "other"]
    widths = [float(bar.get("width", 0)) for bar in bars]
    assert widths[0] > widths[1] > 0
    assert float(bars[2].get("x", 0)) < float(bars[0].get("x", 0))  # faster: to the left of 1
    curves = list(root.iter(f"{SVG}polyline"))
    assert len(curves) == 2
    assert all(len(curve.get("points", "").split()) == 3 for curve in curves)
    assert "open: 0.5 s, then 1.5 s" in shown(root, "name")
    assert plot.svg(results) == plot.svg(results)


def test_a_plot_of_nothing_and_of_zeros() -> None:
    ET.fromstring(plot.svg(Results()))  # noqa: S314
    zeros = Results()
    for name in ("plain file", "kvtool"):
        zeros.add("Save", name, 0.0)
    zeros.add("Scale: open", "1 GB", 0.0)
    ET.fromstring(plot.svg(zeros))  # noqa: S314


def test_tables_have_the_cpu_time_beside_the_time(results: Results) -> None:
    text = results.markdown("###")
    assert "### Save\n" in text
    assert "CPU time of all" not in text
    row = next(line for line in text.splitlines() if line.startswith("| kvtool  "))
    assert [cell.strip() for cell in row.split("|")[1:-1]] == ["kvtool", "6.00 (4.00-8.00)", "1.50", "2"]
    assert "| a ratio | 3.00 x   | at most 2 x | over |" in text
    assert text.endswith("- a note\n")


def test_results_are_kept_and_put_into_the_docs(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "kept")
    again = Results.read(tmp_path / "kept")
    assert again == results
    page = tmp_path / "performance.md"
    page.write_text(f"above\n{docs.BEGIN}old\n{docs.END}below\n")
    docs.refresh(again, tmp_path)
    first = page.read_text()
    assert first == f"above\n{docs.BEGIN}\n{results.markdown('###')}\n{docs.END}below\n"
    docs.refresh(again, tmp_path)
    assert page.read_text() == first
    assert (tmp_path / "performance.svg").read_text() == plot.svg(results)
    page.write_text("no marks\n")
    with pytest.raises(ValueError, match="lacks the marks"):
        docs.refresh(again, tmp_path)
    assert page.read_text() == "no marks\n"
    assert docs.BEGIN in (docs.FOLDER / "performance.md").read_text()


def test_steps_take_turns() -> None:
    found, done = Results(), []
    groups = [[(name, lambda name=name: done.append(name)) for name in group] for group in ("ab", "c")]
    for run in range(3):
        measure(found, "case", groups, run, lambda: done.append("-"), size=10**9)
        done.append("|")
    assert "".join(done) == "-a-b-c|-c-b-a|-a-b-c|"
    assert found.median(cpu_of("case"), "a") is not None
    measure(found, "case", [], 1)  # beside nobody


def test_what_is_measured_warm_is_all_in_memory_before_the_first_is_measured() -> None:
    found, done = Results(), []
    steps = [(name, lambda name=name: done.append(name)) for name in "abc"]
    measure_warm(found, "case", steps, 1)
    assert "".join(done) == "abcbca"
    assert [len(found.values["case"][name]) for name in "abc"] == [1, 1, 1]


def test_shuffled_bytes_have_no_chunk_in_common() -> None:
    data, sizes = random_bytes(2_000_000), ChunkSizes(16 << 10, 64 << 10, 256 << 10)

    def chunks(of: bytes) -> set[bytes]:
        at, found = 0, set()
        for length in chunker.cut(memoryview(of), sizes, final=True):
            found.add(of[at : at + length])
            at += length
        return found

    others = [shuffled(data, seed) for seed in (1, 2)]
    assert all(sorted(other) == sorted(data) for other in others)
    sets = [chunks(part) for part in (data, *others)]
    assert len(set.union(*sets)) == sum(map(len, sets))


def test_a_store_without_data_is_sound_to_start_and_fsck(tmp_path: Path) -> None:
    layout: Layout = layout_in(tmp_path)
    scale.fill(layout, packs=2, seed=1)
    for lock_text in (None, "- another-boot\n"):
        if lock_text is not None:
            layout.lock.write_text(lock_text)
        with recover.writer(layout, sync=False) as (store, recovered, _):
            assert str(recovered) == ""
            assert len(store.catalog.packs()) == 2
            assert store.catalog.chunk_count() == 2 * scale.CHUNKS
    assert len(list(layout.packs.rglob("*.pack"))) == 2
    assert check.check_store(layout).findings == []


def test_the_command_line(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "kept")
    results.write(bench.RESULTS)
    for words, code in (
        (["--again"], 0),
        (["--only", "saev"], "no such case: saev"),
        (["--peers", "rar"], "no such peer: rar"),
    ):
        monkeypatch.setattr("sys.argv", ["bench", *words])
        if code == 0:
            assert bench.main() == 0
            assert "## Save" in capsys.readouterr().out
            continue
        with pytest.raises(SystemExit):
            bench.main()
        assert str(code) in capsys.readouterr().err
