"""The monitor's text and its live view: they fit, they say what matters, and no name can break them."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from automate.campaign.monitoring.picture import ICONS, Queue, Snapshot
from automate.campaign.monitoring.vitals import Rates
from automate.cli.views.blocks import Block, fit, ranges
from automate.cli.views.cells import Column, clean, cut, fold, middle, pad, widths
from automate.cli.views.dashboard import view
from automate.cli.views.marks import ASCII, UNICODE, Marks, marks_for
from automate.cli.views.monitor_text import lines, short_line
from automate.cli.views.numbers import clock, memory, moment, percent, short
from automate.cli.views.screen import Screen
from tests.unit.monitor_support import (
    HOSTILE,
    NOW,
    batch,
    campaign,
    failed,
    generating,
    job,
    model,
    picture,
    playing,
)

SIZES = [(40, 10), (80, 24), (100, 30), (149, 40), (150, 40), (200, 50)]
TITLES = ["=== Arena Hard Judgment Monitor ===", "🏃 Running Judgment Jobs", "⏳ Pending Judgment Jobs",
          "Baseline Model", "📊 Judgment Progress:", "📈 Detailed Model Status:", "📄 Recent Judgment Logs"]


def hostile() -> Snapshot:
    """A campaign in which everything that may be any text is hostile."""
    rows = tuple(model(name, state, 30, 40) for name, state in zip(HOSTILE, [*ICONS, *ICONS], strict=False))
    jobs = tuple(playing(i, nodes=name, user=name, note=name) for i, name in enumerate(HOSTILE, 1))
    waiting = tuple(job(i, "queued", reason=name, words=name, advice=name) for i, name in enumerate(HOSTILE, 1))
    return picture(
        rows, running=jobs, pending=waiting, unknown=tuple(job(9, "unknown", evidence=name) for name in HOSTILE),
        failures=tuple(failed(i, cause=name, todo=name, node=name, next=name, facts=(name,))
                       for i, name in enumerate(HOSTILE)),
        logs=tuple((name, 1, NOW) for name in HOSTILE), problems=HOSTILE, notices=HOSTILE, judge=HOSTILE[3],
        baseline=HOSTILE[0], baseline_answers=dict.fromkeys(HOSTILE, 1), queue=Queue(NOW - 100, HOSTILE[1]),
        batches=tuple(batch(i, "planned", 0, 10, why=name) for i, name in enumerate(HOSTILE)))


SNAPSHOTS = {"empty": picture(), "large": campaign(), "small": campaign(20), "hostile": hostile(),
             "answers": generating(), "hostile answers": generating(HOSTILE),
             "done": picture(tuple(model(f"m{i}", "complete", 10, 10) for i in range(3)))}


def shown(snap: Snapshot, width: int, height: int, marks: Marks = UNICODE) -> list[str]:
    return [line.plain for line in view(snap, width, height, marks)]


@pytest.mark.parametrize("name", SNAPSHOTS)
@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("marks", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_the_view_fits_the_terminal(name: str, width: int, height: int, marks: Marks) -> None:
    rows = shown(SNAPSHOTS[name], width, height, marks)
    assert len(rows) <= height
    assert [row for row in rows if cell_len(row) > width] == []
    assert [row for row in rows if clean(row) != row] == []


@pytest.mark.parametrize("name", SNAPSHOTS)
@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_the_text_fits_the_terminal(name: str, width: int) -> None:
    rows = list(lines(SNAPSHOTS[name], width))
    assert [row for row in rows if cell_len(row) > width] == []
    assert [row for row in rows if clean(row) != row] == []


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_every_line_is_written_as_it_is_with_and_without_colour(name: str) -> None:
    for colour in (True, False):
        out = io.StringIO()
        console = Console(file=out, width=80, force_terminal=True, no_color=not colour, color_system="truecolor")
        for line in view(SNAPSHOTS[name], 80, 24, UNICODE):
            console.print(line, soft_wrap=True)
        written = out.getvalue()
        assert [row.plain.rstrip() for row in map(Text.from_ansi, written.splitlines())] == [
            row.rstrip() for row in shown(SNAPSHOTS[name], 80, 24)]
        assert ("\x1b[3" in written) is (colour and name != "empty") or name == "empty"


def test_the_text_keeps_the_titles_that_scripts_look_for() -> None:
    text = "\n".join(lines(campaign(), 80))
    assert [title for title in TITLES if title not in text] == []
    assert "🏃 Running Judgment Jobs (3):" in text
    assert "  4711_3  capella judge-batch-3  alice  R  15:30  1  c1\n" in text
    assert "🏃 Running Judgment Jobs: None" in "\n".join(lines(picture(), 80))


def test_jobs_that_make_answers_have_sections_of_their_own() -> None:
    text = "\n".join(lines(generating()))
    assert "🏃 Running Judgment Jobs (1):" in text and "🏃 Running Generation Jobs (2):" in text
    assert "4711_1  capella judge-batch-1  alice" in text and "4711_1  capella answer-batch-1  alice" in text
    assert "generating 15:30; 412 of 7500 answers, 1.6 answers/s" in text
    assert "draining: starts no more answers" in text and "⏳ Pending Generation Jobs (1):" in text
    assert "1340 of 2250 answers (59.6%), 1 of 3 models complete" in text
    assert "🟡 two: 300 of 750, 1 due again after a change, 2 empty, 10 given up (10 too_long)" in text
    assert "answers batch 6, job 4711_6: failed" in text and "Baseline Model (three): NOT FOUND; 440 are still" in text
    assert "  answers batch 4: waits for room (MaxSubmitJobs)" in text and "  batch 4: not submitted" in text
    assert "Generation" not in "\n".join(lines(campaign()))


def test_the_live_view_shows_answers_beside_games() -> None:
    rows = "\n".join(shown(generating(), 100, 60))
    for part in ("Running Judgment Jobs (1)", "Running Generation Jobs (2)", "Pending Generation Jobs (1)",
                 "Answers (2)", "answers/s 12.5", "(answers batch 5): no Slurm here", "answers batch 4: waits"):
        assert part in rows, part
    assert "1340 of 2250 answers" in short_line(generating())


def test_the_table_has_its_older_form_where_there_is_room() -> None:
    rows = list(lines(picture((model("tulu3-8b-rank64-alpha1e5-001-step48000", "complete", 1000, 1000,
                                     answers=500),)), 10_000))
    assert "Model Name                                         | Answers | Judgments (Q/G) | Nulls | State" in rows
    assert ("✅ tulu3-8b-rank64-alpha1e5-001-step48000          |     500 |        500/1000 |     0 | complete") in rows


def test_text_for_a_pipe_shortens_no_name() -> None:
    name = "a-very-long-name" * 20
    assert any(name in row for row in lines(picture((model(name),)), 10_000))


@pytest.mark.parametrize("snap", [campaign(), hostile()])
def test_the_tables_columns_stand_below_each_other(snap: Snapshot) -> None:
    table = [row for row in lines(snap, 80) if " | " in row]
    places = {cell_len(row.rpartition(" | ")[0]) for row in table}
    assert len(table) == len(snap.models) + 1
    assert len(places) == 1


def test_what_moves_stands_first_and_the_rest_is_summed_up() -> None:
    rows = shown(campaign(), 80, 24)
    first = next(i for i, row in enumerate(rows) if row.startswith("Models (120)"))
    assert "003-step6000" in rows[first + 2]
    assert rows[-1] == "  and 36 partial, 60 waiting, 20 complete"


def test_a_small_terminal_still_shows_what_runs_and_what_failed() -> None:
    text = "\n".join(shown(campaign(), 80, 24))
    for words in ("Running Judgment Jobs (3)", "loading 3:20 of about 5:00", "judge server: out of memory",
                  "games/s 3.3", "51300/180000 games", "34.2 GPU-hours used of at most 120"):
        assert words in text


def test_a_large_terminal_shows_everything() -> None:
    text = "\n".join(shown(campaign(), 200, 60))
    for words in ("KV cache 62%", "prefix hits 44%", "GPU 139/159 GB 97%", "requests 62 running, 8 waiting",
                  "prompt tok/s 24.7k", "output tok/s 4.2k", "60 nulls (unparsed)", "ends about", "queue as of 4 s ago",
                  "requeued itself, start 3 of at most 21", "batch 8-10: other jobs of the partition come first",
                  "batch 11-12: not submitted", "c3: 2 judge servers", "Recent Judgment Logs (5)",
                  "its judge server died 1x"):
        assert words in text


def test_a_cluster_that_cant_be_asked_is_said_with_when_it_was_asked() -> None:
    snap = picture(queue=Queue(NOW - 200, "squeue failed: Unable to contact slurm controller"))
    line = "Slurm can't be asked: squeue failed: Unable to contact slurm controller (asked 3:20 ago)"
    assert f"! {line}" in shown(snap, 120, 24)
    assert f"⚠️  {line}" in list(lines(snap, 120))
    assert line in short_line(snap)


def test_old_numbers_are_marked() -> None:
    snap = picture(running=(playing(1).__class__(**{**vars(playing(1)), "age": 130.0}),), rates=Rates(silent=1))
    for rows in (shown(snap, 100, 24), list(lines(snap, 100))):
        text = "\n".join(rows)
        assert "old: last word 2:10 ago" in text
        assert "1 job silent for over a minute: old numbers left out" in text


def test_a_wait_that_never_ends_says_so_and_what_to_do() -> None:
    held = job(1, "queued", reason="JobHeldUser", words="held by its user", advice="'scontrol release JOB'", never=True)
    text = "\n".join(lines(picture(pending=(held,)), 100))
    assert "held by its user (JobHeldUser); Slurm won't start it as it is" in text
    assert "→ 'scontrol release JOB'" in text


def test_a_line_for_a_watch_without_a_terminal() -> None:
    line = short_line(campaign())
    assert "\n" not in line
    for words in ("51300 of 180000 games", "3 running, 4 pending", "3.3 games/s", "ends about", "1 failure"):
        assert words in line


def test_an_error_of_the_view_is_a_line_of_it() -> None:
    rows = view(campaign(), 80, 24, UNICODE, ["this look failed: \x1b[2Jno such file; trying again"])
    assert "! this look failed: ?[2Jno such file; trying again" in [row.plain for row in rows]


@pytest.mark.parametrize(("text", "width", "expected"), [
    ("tulu3-step48000", 20, "tulu3-step48000"), ("tulu3-8b-rank64-step48000", 16, "tulu3-…step48000"),
    ("模型模型模型模型", 9, "模型…模型"), ("abc", 1, "…"), ("abc", 0, "")])
def test_names_are_shortened_in_the_middle(text: str, width: int, expected: str) -> None:
    found = middle(text, width)
    assert (found, cell_len(found) <= width) == (expected, True)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("width", range(0, 30, 3))
def test_cutting_never_gives_more_cells_than_asked(text: str, width: int) -> None:
    for how in (cut, middle):
        assert cell_len(how(clean(text), width)) <= width
    assert cell_len(pad(cut(clean(text), width), width)) == width
    for line in fold(clean(text) * 3, max(width, 4), "  "):
        assert cell_len(line) <= max(width, 4)


def test_folding_keeps_every_word() -> None:
    text = "one two three fourteen-letters a b c"
    assert "".join("".join(fold(text, 9, "  ", "- ")).split()) == "-" + text.replace(" ", "")


def test_columns_shrink_before_they_are_dropped_and_the_last_to_go_is_dropped_first() -> None:
    columns = [Column("name", least=4), Column("b", drop=1), Column("c", drop=2)]
    cells = [["0123456789", "bbbb", "cccc"]]
    assert widths(columns, cells, 22) == [10, 4, 4]
    assert widths(columns, cells, 18) == [6, 4, 4]
    assert widths(columns, cells, 15) == [9, 4, 0]
    assert widths(columns, cells, 5) == [5, 0, 0]


def test_blocks_share_the_height_by_rank() -> None:
    blocks = [Block(Text(f"t{i}"), [Text(f"{i}.{j}") for j in range(10)], 9 - i, 2, lambda n: f"rest {n}")
              for i in range(3)]
    assert [line.plain for line in fit(blocks, 80, 9)] == [
        "t1", "1.0", "1.1", "  rest 2", "t2", "2.0", "2.1", "2.2", "  rest 3"]
    assert [line.plain for line in fit(blocks, 80, 3)] == ["t2", "2.0", "  rest 1"]
    assert [line.plain for line in fit(blocks, 80, 100)] == [
        line for i in range(3) for line in [f"t{i}", *(f"{i}.{j}" for j in range(10))]]


def test_numbers_in_few_characters() -> None:
    assert [short(n) for n in (None, 0.0, 0.42, 3.14, 240.0, 12_340.0, 4_100_000.0)] == [
        "-", "0", "0.42", "3.1", "240", "12.3k", "4.1M"]
    assert [clock(n) for n in (None, 7, 200, 3723, 180_000)] == ["-", "0:07", "3:20", "1:02:03", "2-02:00:00"]
    assert [percent(*n) for n in ((0, 0), (0, 10), (9999, 10_000), (10, 10))] == ["-", "0%", "99%", "100%"]
    assert memory(71_000, 81_559) == "69/80 GB"
    assert ranges([3, 1, 2, 7, 9, 10]) == "1-3, 7, 9-10"
    assert len(moment(NOW, NOW)) == 5 < len(moment(NOW + 90_000, NOW)) < len(moment(NOW + 9e6, NOW))


def test_a_terminal_without_the_signs_gets_others() -> None:
    assert marks_for("utf-8") is UNICODE
    assert marks_for("latin-1") is ASCII
    assert "".join(shown(campaign(20), 80, 24, ASCII)).replace("…", "").isascii()


# --- the screen: what is written to the terminal


def screen_of(width: int = 80, height: int = 24) -> tuple[Screen, io.StringIO, Console]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system="standard")
    return Screen(console), out, console


def replay(written: str, height: int) -> list[str]:
    """What a terminal shows after this, as far as the screen's own few commands go."""
    rows = [""] * height
    for piece in written.split("\x1b[")[1:]:
        place, mark, _ = piece.partition(";1H")
        if mark and place.isdigit():
            at, rows[int(place) - 1] = int(place) - 1, ""
        elif piece.startswith("2J"):
            rows = [""] * height
        else:
            command = next(i for i, char in enumerate(piece) if char.isalpha())
            rows[at] += piece[command + 1:]
    return rows


def draw_all(screen: Screen, pictures: Sequence[list[Text]]) -> list[int]:
    return [screen.draw(rows) for rows in pictures]


def test_only_lines_that_changed_are_written() -> None:
    screen, out, _ = screen_of()
    before = view(campaign(), 80, 24, UNICODE)
    after = [Text("other") if i == 3 else line for i, line in enumerate(before)]
    whole, same, one = draw_all(screen, [before, before, after])
    assert whole > 1000
    assert same == 0
    assert 0 < one < 40
    assert [row.rstrip() for row in replay(out.getvalue(), 24)][:len(after)] == [row.plain.rstrip() for row in after]


def test_lines_that_are_gone_are_wiped() -> None:
    screen, out, _ = screen_of()
    draw_all(screen, [[Text("a"), Text("b"), Text("c")], [Text("a")]])
    assert replay(out.getvalue(), 24)[:3] == ["a", "", ""]


def test_a_terminal_of_another_size_is_drawn_anew() -> None:
    screen, out, console = screen_of()
    rows = [Text("a"), Text("b" * 80)]
    screen.draw(rows)
    console.width = 40
    assert screen.resized
    screen.draw(rows)
    assert out.getvalue().count("\x1b[2J") == 2
    assert replay(out.getvalue(), 24)[1] == "b" * 40
    assert not screen.resized


@pytest.mark.parametrize(("reason", "words"), [
    ("BeginTime", "(BeginTime), not before 2026-11-21 09:34"),
    ("Resources", "(Resources), by Slurm's estimate 2026-11-21 09:34")])
def test_when_a_waiting_job_begins(reason: str, words: str) -> None:
    waiting = job(1, "queued", reason=reason, words="in words", begins="2026-11-21T09:34:40")
    assert any(words in row for row in lines(picture(pending=(waiting,)), 100))
