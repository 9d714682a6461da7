"""The chain's plan: which judging batch waits for which answers, what preflight says of it, how it is shown."""

from __future__ import annotations

from pathlib import Path

from automate.arena.answering.candidates import Problem
from automate.arena.preflight.check import Report
from automate.arena.preflight.findings import error, passed
from automate.campaign.chain import Links, align, answers_first, link, makers_of
from automate.campaign.chain_checks import relax, with_answers_to_come
from automate.campaign.chain_held import Maker
from automate.campaign.generating import spread, spread_out
from automate.campaign.handing import Request, submit_claim
from automate.cli.views.chain_text import Line, chain_lines, few, some
from automate.cluster.local.executor import LocalCluster
from automate.errors import DataError
from automate.workspace import Workspace, open_workspace
from tests.e2e.chain_support import make_bare
from tests.e2e.support import EXAMPLE_BASELINE, EXAMPLES

ONE, TWO, BASE = ("plan", 1), ("plan", 2), ("plan", 3)
FIRST, SECOND, LAST = EXAMPLES


def aligned(due: dict[str, int], makers: dict[str, Maker], needed: list[Maker], size: int = 10,
            first: int = 1) -> list[tuple[int, tuple[str, ...], tuple[Maker, ...]]]:
    batches, waits = align(due, makers, needed, size, first)
    return [(batch.number, batch.models, waits.get(batch.number, ())) for batch in batches]


# --- which batch waits for what ---------------------------------------------------------------------------
def test_models_generated_together_are_judged_together() -> None:
    due = {"a": 2, "b": 2, "c": 2, "d": 2}
    makers = {"b": TWO, "c": ONE, "d": TWO}
    assert aligned(due, makers, []) == [(1, ("a",), ()), (2, ("b", "d"), (TWO,)), (3, ("c",), (ONE,))]


def test_every_batch_waits_for_a_baseline_that_is_made() -> None:
    makers = {"b": ONE, "c": BASE}
    assert aligned({"a": 2, "b": 2, "c": 2}, makers, [BASE]) == [
        (1, ("a",), (BASE,)), (2, ("b",), (ONE, BASE)), (3, ("c",), (BASE,))]


def test_a_baselines_answers_are_made_first_and_alone() -> None:
    due = dict.fromkeys(["a", "base", "b", "c"], 3)
    found = spread_out([["a", "base"], ["b"], ["c"]], due, 4, 5, {"base"})
    assert [(batch.number, batch.models, batch.games) for batch in found] == [
        (5, ("base",), 3), (6, ("a", "b", "c"), 9)]
    assert spread_out([["a"], ["b"]], due, 4, 1, {"base"}) == spread([["a"], ["b"]], due, 4, 1)


def test_a_big_batch_of_answers_is_judged_in_several() -> None:
    due = dict.fromkeys("abcde", 2)
    found = aligned(due, dict.fromkeys("abcde", ONE), [], size=2, first=7)
    assert [number for number, _, _ in found] == [7, 8, 9]
    assert sorted(model for _, models, _ in found for model in models) == list("abcde")
    assert all(len(models) <= 2 and waits == (ONE,) for _, models, waits in found)


def test_models_without_games_make_no_batch() -> None:
    assert aligned({"a": 0, "b": 2}, {"a": ONE}, []) == [(1, ("b",), ())]
    assert aligned({}, {}, []) == []


# --- the plan of a workspace ------------------------------------------------------------------------------
def planned(root: Path, models: tuple[str, ...] = EXAMPLES) -> tuple[Workspace, Links, dict[str, Maker]]:
    workspace = open_workspace(root)
    cluster, request = LocalCluster(workspace.local_queue, root), Request(models)
    claim = submit_claim(workspace)
    try:
        prepared = answers_first(workspace, cluster, request)
        return workspace, link(workspace, cluster, request, prepared), makers_of(prepared)
    finally:
        claim.release()


def batches(links: Links) -> list[tuple[int, tuple[str, ...], int]]:
    assert links.stored is not None
    return [(batch.number, batch.models, batch.games) for batch in links.stored.plan.batches]


def test_models_that_get_answers_count_with_two_games_a_question(tmp_path: Path) -> None:
    _, links, makers = planned(make_bare(tmp_path / "x", (FIRST, LAST), batch_size=10))
    assert batches(links) == [(1, (SECOND,), 24), (2, (FIRST, LAST), 48)]
    assert links.waits == {2: (makers[FIRST],)}
    assert set(makers) == {FIRST, LAST}


def test_without_the_baselines_answers_every_batch_waits_for_them(tmp_path: Path) -> None:
    _, links, makers = planned(make_bare(tmp_path / "x", (FIRST, EXAMPLE_BASELINE)))
    assert batches(links) == [(1, (SECOND,), 24), (2, (LAST,), 24), (3, (FIRST,), 24)]
    assert links.waits == {1: (makers[EXAMPLE_BASELINE],), 2: (makers[EXAMPLE_BASELINE],),
                           3: (makers[FIRST], makers[EXAMPLE_BASELINE])}
    assert links.progress is None


def test_nothing_is_written_before_it_is_known_that_answers_can_be_had(tmp_path: Path) -> None:
    root = make_bare(tmp_path / "x", (FIRST,))
    workspace = open_workspace(root)
    cluster, request = LocalCluster(workspace.local_queue, root), Request(EXAMPLES)
    claim = submit_claim(workspace)
    try:
        prepared = answers_first(workspace, cluster, request)
        assert [one.model for one in prepared.good] == [FIRST]
        assert prepared.stored is None
        assert not list(root.glob("generated_*/*"))
        link(workspace, cluster, request, prepared)
    finally:
        claim.release()
    assert prepared.stored is not None
    assert list(root.glob("generated_answer_scripts/*.sh"))


def test_the_same_plan_again_is_the_same_plan(tmp_path: Path) -> None:
    root = make_bare(tmp_path / "x", (FIRST,))
    _, one, _ = planned(root)
    files = {path: path.read_bytes() for path in root.glob("generated_*/*")}
    _, two, _ = planned(root)
    assert one.stored == two.stored
    assert {path: path.read_bytes() for path in root.glob("generated_*/*")} == files


def test_a_baseline_that_nobody_can_make_is_an_error(tmp_path: Path) -> None:
    root = make_bare(tmp_path / "x", (EXAMPLE_BASELINE,), generate={"kind": "vllm"})
    try:
        planned(root)
    except DataError as told:
        assert EXAMPLE_BASELINE in told.what
        assert "can be generated" in told.what
        assert told.todo is not None
        assert "--baseline" in told.todo
    else:
        raise AssertionError("no error")


def test_a_model_that_nobody_can_make_is_left_out_with_the_reason(tmp_path: Path) -> None:
    _, links, makers = planned(make_bare(tmp_path / "x", (FIRST,), generate={"kind": "vllm"}))
    assert list(links.without) == [FIRST]
    assert "nothing says where this model lies" in links.without[FIRST]
    assert [models for _, models, _ in batches(links)] == [(SECOND,), (LAST,)]
    assert (makers, links.waits) == ({}, {})


# --- preflight --------------------------------------------------------------------------------------------
NO_FILE = error("FH103", "a", "no answer file", "generate them", "a")
SOME = error("FH104", "b", "no answer to 3 of 12 questions: x, y, z", "generate them", "b")
NONE = error("FH110", "models", "no model can be judged", "name some")
BARE = error("FH201", "base", "no answer file", "generate them")
DOUBLE = error("FH105", "b", "more than one answer to 1 questions: x", "mend it", "b")


def test_answers_that_can_be_generated_are_no_errors() -> None:
    report = relax(Report((NO_FILE, SOME, NONE, BARE), (), ("a", "b")), {"a", "b", "base"}, {}, {"base"})
    assert report.ok
    assert (report.ready, report.blocked) == (("a", "b"), ())
    assert [one.what for one in report.findings] == ["2 model(s) lack answers, which are generated first"]


def test_of_others_it_is_said_why_not() -> None:
    problem = Problem("a", "generate.models.a", "nothing says where", "name it")
    report = relax(Report((NO_FILE, SOME), (), ("a", "b")), {"b"}, {"a": problem}, set())
    assert (report.ready, report.blocked) == (("b",), ("a",))
    (left,) = [one for one in report.findings if one.model == "a"]
    assert left.todo == "it can't be generated: generate.models.a: nothing says where; name it"


def test_nothing_else_is_dropped() -> None:
    kept = (passed("FH201", "base", "the baseline answers all of its 12 questions"), DOUBLE)
    report = relax(Report((*kept, NONE), (), ("b",)), {"b", "base"}, {}, {"base"})
    assert set(report.findings) == {*kept, NONE}
    assert report.blocked == ("b",)
    lines = error("FH201", "base", "the baseline's answers: bad lines: 7", "mend it")
    assert not relax(Report((lines,), ("b",), ()), {"base"}, {}, {"base"}).ok


def test_a_model_whose_folder_the_settings_name_needs_no_entry_elsewhere(tmp_path: Path) -> None:
    root = make_bare(tmp_path / "x", (FIRST,), generate={"kind": "rehearsal", "path": str(tmp_path / "{model}"),
                                                         "models": {"b": {"path": "/nowhere"}}})
    (tmp_path / "a").mkdir()
    said = [error("FH102", name, "not in api_config.yaml", "add it", name) for name in "abc"]
    found = with_answers_to_come(open_workspace(root), Report(tuple(said), (), tuple("abc")))
    assert (found.ready, found.blocked) == (("a", "b"), ("c",))
    assert [one.level.value for one in found.findings] == ["note", "note", "error"]


def test_an_error_of_all_models_is_not_called_ready(tmp_path: Path) -> None:
    from rich.console import Console

    from automate.cli.checks import print_report

    console = Console(record=True, width=120)
    print_report(console, Report((error("FH112", "questions", "no questions in it", ""),), ("a", "b"), ()))
    text = console.export_text()
    assert "No model is ready: 1 error concerns all of them" in text
    assert "2 model(s) ready" not in text


# --- how it is shown --------------------------------------------------------------------------------------
def test_a_chain_as_lines(tmp_path: Path) -> None:
    root = make_bare(tmp_path / "x", (FIRST, EXAMPLE_BASELINE), batch_size=1)
    workspace = open_workspace(root)
    cluster, request = LocalCluster(workspace.local_queue, root), Request((FIRST, SECOND))
    prepared = answers_first(workspace, cluster, request)
    lines = chain_lines(prepared, link(workspace, cluster, request, prepared), 2, "results/")
    assert lines == [
        Line("answers 1", EXAMPLE_BASELINE, "12 answers", "at once"),
        Line("answers 2", FIRST, "12 answers", "at once"),
        Line("games 1", SECOND, "24 games", "after answers 1"),
        Line("games 2", FIRST, "24 games", "after answers 1-2"),
        Line("report", "2 models", "results/", "after games 1-2"),
    ]


def test_long_lists_are_cut() -> None:
    assert some([f"m{n}" for n in range(7)]) == "m0, m1, m2, m3 and 3 more"
    assert some(["a"]) == "a"
    assert few(["a" * 30, "b" * 30, "c"]) == f"{'a' * 30} and 2 more"
    assert few(["a" * 90]) == "a" * 90
    assert few(list("abcdef")) == "a, b, c, d and 2 more"
