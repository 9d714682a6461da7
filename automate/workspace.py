"""Every path of a workspace, in one place; nobody else joins path names.

Never reads or writes the files it names, apart from looking for flock-hpc.yaml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from automate.errors import WorkspaceError
from automate.names import baseline_tag, check_name
from automate.settings import Settings
from automate.settings_loader import load_settings
from automate.validation_places import ValidationPlaces
from automate.yamlfile import Value

SETTINGS_FILE = "flock-hpc.yaml"


@dataclass(frozen=True)
class Workspace:
    """The folders and files of one workspace under `root` (absolute).

    `default_baseline` is the baseline of flock-hpc.yaml, whatever a command's --baseline says: its rows lie where
    upstream looks for them.
    """

    root: Path
    settings: Settings
    default_baseline: str

    @property
    def settings_file(self) -> Path:
        return self.root / SETTINGS_FILE

    @property
    def models_file(self) -> Path:
        return self.root / self.settings.models_file

    @property
    def templates(self) -> Path:
        """The workspace's own job templates; they win over the shipped ones."""
        return self.root / "templates"

    # --- what the spec's tree names -------------------------------------------------------------
    @property
    def scripts(self) -> Path:
        return self.root / "generated_judgment_scripts"

    @property
    def configs(self) -> Path:
        return self.root / "generated_judgment_configs"

    @property
    def logs(self) -> Path:
        return self.root / "logs" / "arena-hard" / "judgment_batches"

    # --- generation jobs ------------------------------------------------------------------------
    @property
    def answer_scripts(self) -> Path:
        return self.root / "generated_answer_scripts"

    @property
    def answer_configs(self) -> Path:
        return self.root / "generated_answer_configs"

    @property
    def answer_logs(self) -> Path:
        return self.root / "logs" / "arena-hard" / "answer_batches"

    def answer_script(self, number: int) -> Path:
        return self.answer_scripts / f"run_arena_hard_answers_batch_{number}.sh"

    def answer_array_script(self, part: int = 1) -> Path:
        suffix = "" if part == 1 else f"_{part}"
        return self.answer_scripts / f"run_arena_hard_answers_array{suffix}.sh"

    def answer_config(self, number: int) -> Path:
        return self.answer_configs / f"arena_hard_answers_batch_{number}.yaml"

    @property
    def report_script(self) -> Path:
        """The small job that writes the report at the end of a chain."""
        return self.scripts / "run_arena_hard_report.sh"

    # --- judging jobs ---------------------------------------------------------------------------
    def batch_script(self, number: int) -> Path:
        return self.scripts / f"run_arena_hard_judgment_batch_{number}.sh"

    def array_script(self, part: int = 1) -> Path:
        suffix = "" if part == 1 else f"_{part}"
        return self.scripts / f"run_arena_hard_judgment_array{suffix}.sh"

    @property
    def refill_script(self) -> Path:
        return self.scripts / "run_arena_hard_judgment_refill.sh"

    def waiting(self, plan: str) -> Path:
        """That batches of a plan wait for a refill job to hand them in."""
        return self.submissions / f"{check_name(plan, 'plan')}.waiting"

    def unsent(self, plan: str) -> Path:
        """That a plan was to be handed in and did not fit as a whole, with the limit."""
        return self.submissions / f"{check_name(plan, 'plan')}.unsent"

    def stopped(self, plan: str) -> Path:
        """That a plan was cancelled: nothing more of it is handed in."""
        return self.submissions / f"{check_name(plan, 'plan')}.stopped"

    def batch_config(self, number: int) -> Path:
        return self.configs / f"arena_hard_judgment_batch_{number}.yaml"

    # --- the user's Arena-Hard checkout ---------------------------------------------------------
    @property
    def arena_hard(self) -> Path:
        return self.root / self.settings.arena_hard

    @property
    def api_config(self) -> Path:
        return self.arena_hard / "config" / "api_config.yaml"

    @property
    def bench_settings(self) -> Path:
        return self.arena_hard / "config" / f"{self.settings.bench}.yaml"

    @property
    def judge_utils(self) -> Path:
        return self.arena_hard / "utils" / "judge_utils.py"

    @property
    def gen_judgment(self) -> Path:
        return self.arena_hard / "gen_judgment.py"

    @property
    def bench(self) -> Path:
        return self.arena_hard / "data" / self.settings.bench

    @property
    def questions(self) -> Path:
        return self.bench / "question.jsonl"

    @property
    def answers(self) -> Path:
        return self.bench / "model_answer"

    def answer_file(self, model: str) -> Path:
        return self.answers / f"{check_name(model)}.jsonl"

    @property
    def judgments(self) -> Path:
        return self.bench / "model_judgment" / self.settings.judge.name

    def rows_file(self, model: str, baseline: str, default_baseline: str) -> Path:
        """Upstream's judgment file of a model; another baseline than the default has its own folder."""
        other = f"compared_with_{check_name(baseline, 'baseline')}" if baseline != default_baseline else "."
        return self.judgments / other / f"{check_name(model)}.jsonl"

    # --- what flock-hpc keeps for itself --------------------------------------------------------
    @property
    def state(self) -> Path:
        return self.root / ".flock-hpc"

    def _judge_state(self, kind: str, baseline: str) -> Path:
        settings = self.settings
        return self.state / kind / settings.bench / settings.judge.name / check_name(baseline, "baseline")

    def journal(self, model: str, baseline: str) -> Path:
        """Folder of a model's record files under this bench, judge and baseline."""
        return self._judge_state("journal", baseline) / check_name(model)

    def _kept(self, kind: str, model: str, baseline: str) -> Path:
        return self.cache / self._judge_state(kind, baseline).relative_to(self.state) / f"{check_name(model)}.{kind}"

    def keys_file(self, model: str, baseline: str) -> Path:
        """Where the keys of a model's wanted games are kept, so that they need not be computed again."""
        return self._kept("keys", model, baseline)

    def counts_file(self, model: str, baseline: str) -> Path:
        """Where it is kept what was counted of a model's journal, so that it need not be read again."""
        return self._kept("counts", model, baseline)

    def journal_baselines(self) -> list[str]:
        """Baselines that have records under this bench and judge."""
        folder = self._judge_state("journal", "x").parent
        return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

    def claim(self, model: str) -> Path:
        """A model's claim under this bench and judge; one for all baselines, as they may share a file."""
        return self._judge_state("claims", "all") / check_name(model)

    def answer_journal(self, model: str) -> Path:
        """Folder of the record files of a model's answers under this bench."""
        return self.state / "answers" / self.settings.bench / check_name(model)

    def answer_counts_file(self, model: str) -> Path:
        """Where it is kept what was counted of a model's answers, so that they need not be read again."""
        return self.cache / "answers" / self.settings.bench / f"{check_name(model)}.json"

    def answer_claim(self, model: str) -> Path:
        return self.state / "claims" / self.settings.bench / "answers" / check_name(model)

    @property
    def results(self) -> Path:
        """Where reports, plots and tables are written when no other place is named."""
        return self.root / "results"

    @property
    def superseded(self) -> Path:
        return self.state / "superseded"

    @property
    def plans(self) -> Path:
        return self.state / "plans"

    @property
    def submissions(self) -> Path:
        return self.state / "submissions"

    @property
    def runs(self) -> Path:
        """What each started job says of itself."""
        return self.state / "runs"

    @property
    def nodes(self) -> Path:
        """Which nodes' deaths were forgiven, and when."""
        return self.state / "nodes"

    @property
    def journals(self) -> Path:
        """The journals of all benches, judges and baselines."""
        return self.state / "journal"

    @property
    def profiles(self) -> Path:
        """The workspace's own cluster profiles; they win over the shipped ones."""
        return self.root / "profiles"

    @property
    def doctor(self) -> Path:
        """Jobs that only looked at the cluster: scripts, logs and what they found."""
        return self.state / "doctor"

    @property
    def queue_cache(self) -> Path:
        """Slurm's last answer, shared by everybody who only looks."""
        return self.state / "queue"

    @property
    def cache(self) -> Path:
        """What can be made again from other files, at a price."""
        return self.state / "cache"

    @property
    def rehearsals(self) -> Path:
        """Workspaces in which plans were rehearsed."""
        return self.state / "rehearsals"

    @property
    def local_queue(self) -> Path:
        return self.state / "local"

    @property
    def secrets(self) -> Path:
        return self.state / "secrets"

    @property
    def submit_claim(self) -> Path:
        return self.state / "claims" / "submit"

    @property
    def validation(self) -> ValidationPlaces:
        """The folders and files of Flock validation."""
        return ValidationPlaces(self.root, self.settings.validation)


def open_workspace(root: Path, overrides: Mapping[str, Value] | None = None) -> Workspace:
    """The workspace at `root` with settings under command-line `overrides`. Raises ConfigError."""
    file = root / SETTINGS_FILE
    given = dict(overrides or {})
    settings = plain = load_settings(file, root=root, overrides=given)
    if given.pop("baseline", None) is not None:
        plain = load_settings(file, root=root, overrides=given)
    return Workspace(root, settings, baseline_tag(plain.baseline))


def find_root(start: Path | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """The nearest folder upwards from `start` that holds flock-hpc.yaml. Raises WorkspaceError."""
    named = (os.environ if environ is None else environ).get("FLOCK_HPC_WORKSPACE")
    here = (start or Path(named or ".")).resolve()
    found = next((folder for folder in (here, *here.parents) if (folder / SETTINGS_FILE).is_file()), None)
    if found is not None:
        return found
    raise WorkspaceError(
        f"no workspace here: no {SETTINGS_FILE} in this folder or above it", where=str(here),
        todo="make one with 'flock-hpc init', or 'flock-hpc init --adopt' in a folder that has Arena-Hard runs, "
        "or name one with --workspace DIR",
    )
