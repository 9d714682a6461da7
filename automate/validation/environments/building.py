"""Making a module's environment: under a claim, aside, and put into place only when it is whole and checked.

Never touches the build that is in use before the new one is finished."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from automate import claims
from automate.errors import ClaimedError, ModuleEnvironmentError, StorageError
from automate.processes import PR_SET_PDEATHSIG, prctl
from automate.validation.catalogue import ENVIRONMENT, Source
from automate.validation.environments import folders, managers
from automate.validation.environments.declarations import digest
from automate.validation.environments.states import EnvironmentState, state
from automate.validation.secrets import scrub, without_secrets
from automate.validation_places import ValidationPlaces

STALE = 60.0
_BEAT = 5.0
_LAST_LINES = 12
Say = Callable[[str], None]


def create(source: Source, places: ValidationPlaces, *, say: Say, environ: Mapping[str, str] | None = None,
           stale: float = STALE) -> EnvironmentState:
    """Build or update a module's environment; nothing is done where it is up to date.

    Raises ClaimedError where another builds it, ModuleEnvironmentError where it can't be built (what was in use
    before still is), StorageError. `stale`: seconds after which a dead builder's claim is taken over.
    """
    env = os.environ if environ is None else environ
    found = state(source, places, environ=env)
    if found.status in ("ready", "current"):
        ready = "up to date" if found.status == "ready" else "flock-hpc's own Python is used"
        say(f"{found.name}: {found.why or ready}")
        return found
    folders.check_free(places, source.name)
    with _claimed(source.name, places, say, stale) as claim:
        found = state(source, places, environ=env)
        if found.status == "ready":
            say(f"{found.name}: built meanwhile")
            return found
        folders.sweep(places, source.name)
        build(source, places, env, claim, say)
        folders.sweep(places, source.name)
    return state(source, places, environ=env)


@contextlib.contextmanager
def _claimed(module: str, places: ValidationPlaces, say: Say, stale: float) -> Iterator[claims.Claim]:
    claim = _take(places.environment_claim(module), say, stale)
    try:
        yield claim
    finally:
        claim.release()


def _take(folder: Path, say: Say, stale: float) -> claims.Claim:
    """The claim; a dead holder's is waited for, a living one's is an error."""
    until = time.monotonic() + 2 * stale + 1
    while True:
        try:
            return claims.take(folder, stale=stale)
        except ClaimedError as error:
            if not error.holder_gone or time.monotonic() > until:
                raise
            say(f"a build that was killed left its claim: {error.what}")
            time.sleep(min(stale, _BEAT))


def build(source: Source, places: ValidationPlaces, environ: Mapping[str, str], claim: claims.Claim,
          say: Say) -> None:
    """Build a module's environment and put it into place. Only under `claim`; raises what `create` raises."""
    chosen = _choose(source, places, environ)
    made = digest(chosen.declaration, chosen.manager, chosen.python)
    folder = folders.fresh_folder(places, source.name, made)
    log = folders.logs_of(places) / f"{folder.name}.log"
    before = folders.current(places, source.name)
    say(f"{folders.name_of(source.name)}: building with {chosen.manager}; log: {log}")
    try:
        steps = managers.commands(chosen, folder, places.settings.python, _declared(chosen, log))
        for command in steps:
            _run(command, log, _environment(places, environ), claim, source.name)
        folders.put_in_place(places, source.name, folders.Built(folder, made, chosen.manager, time.time(),
                                                                before.folder.name if before else None))
    except BaseException:
        in_use = folders.current(places, source.name)
        if in_use is None or in_use.folder != folder:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    say(f"{folders.name_of(source.name)}: ready in {folder}")


def _choose(source: Source, places: ValidationPlaces, environ: Mapping[str, str]) -> managers.Chosen:
    """The manager of a build: the last one again where it is still there."""
    before = folders.current(places, source.name)
    last = before.manager if before else None
    chosen = managers.choose(source, places, environ, last=last)
    if chosen.program is None and chosen.manager != "venv":
        chosen = managers.choose(source, places, environ)
    return chosen


def _declared(chosen: managers.Chosen, log: Path) -> Path:
    """The declaration's file. Conda knows an environment file by its name: another name gets a copy that has it."""
    file = chosen.declaration.file
    if chosen.declaration.kind != ENVIRONMENT or file.name == ENVIRONMENT:
        return file.absolute()
    copy = log.with_suffix(".declared") / ENVIRONMENT
    try:
        copy.parent.mkdir(parents=True)
        shutil.copyfile(file, copy)
    except OSError as error:
        raise StorageError.of(error, copy, "copy the declaration") from error
    return copy


def _environment(places: ValidationPlaces, environ: Mapping[str, str]) -> dict[str, str]:
    """What a build sees: nothing secret, nothing that leads to another environment, nothing that asks."""
    kept = without_secrets(environ, [places.settings.api_key_env, places.settings.hf_token_env])
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PIP_TARGET", "PIP_PREFIX"):
        kept.pop(name, None)
    return kept | managers.QUIET


def _run(command: list[str], log: Path, environ: Mapping[str, str], claim: claims.Claim, module: str) -> None:
    """One step of a build, its output into the log. Raises ModuleEnvironmentError with the log's last lines."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            output.write(f"$ {' '.join(command)}\n".encode())
            output.flush()
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       env=dict(environ), cwd=log.parent, start_new_session=True,
                                       preexec_fn=_die_with_builder)  # noqa: PLW1509 - only prctl, before exec
    except OSError as error:
        raise ModuleEnvironmentError(f"the environment of '{module}' can't be built: {error.strerror or error}",
                                     where=str(log), todo=f"check that {command[0]} can be run") from error
    status = _wait(process, claim)
    if status != 0:
        raise ModuleEnvironmentError(
            f"the environment of '{module}' could not be built: {Path(command[0]).name} ended with status {status}\n"
            + _tail(log), where=str(log),
            todo=f"put right what the log says, then run 'flock-hpc validation env create {module}' again where there "
                 "is internet (the login node); an environment that worked before still does")


def _die_with_builder() -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait(process: subprocess.Popen[bytes], claim: claims.Claim) -> int:
    """The step's exit status; the claim is kept alive meanwhile, and the step ended with us or with the claim."""
    try:
        while True:
            try:
                return process.wait(timeout=_BEAT)
            except subprocess.TimeoutExpired:
                if not claim.beat():
                    raise ClaimedError("another builder has taken over", where=str(claim.path.parent),
                                       todo="let it finish") from None
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16384))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    last = [line for line in lines if line.strip()][-_LAST_LINES:]
    return scrub("\n".join(f"  {line[:300]}" for line in last), [])
