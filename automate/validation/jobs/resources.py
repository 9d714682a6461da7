"""What a validation job asks Slurm for, and what its processes find around them. Pure.

Never puts a secret anywhere: every environment made here is without."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from automate.cluster.arrays import Option
from automate.settings import Settings, Slurm
from automate.validation.secrets import without_secrets

JUDGE_KEY, JUDGE_URL = "OPENAI_API_KEY", "OPENAI_BASE_URL"
"""The judge's variables, for second steps on the login node."""
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "FLOCK_API_KEY", JUDGE_KEY)


def slurm_of(settings: Settings, module: str) -> Slurm:
    """`slurm` under `validation.slurm` under `validation.module_slurm` of this module."""
    own = settings.validation
    slurm = settings.slurm
    for layer in (own.slurm, own.module_slurm.get(module)):
        if layer is None:
            continue
        asked = layer.model_dump(exclude_none=True)
        if layer.gpus is not None and layer.gres is None:
            asked["gres"] = None  # the gres of the layer below would win over it
        slurm = slurm.model_copy(update=asked)
    return slurm


def sbatch_options(slurm: Slurm) -> dict[str, Option]:
    """sbatch's long options for one module's jobs."""
    named: dict[str, Option] = {
        "partition": slurm.partition, "account": slurm.account, "qos": slurm.qos, "time": slurm.time,
        "mem": slurm.mem, "cpus-per-task": slurm.cpus_per_task, "exclude": slurm.exclude,
        "constraint": slurm.constraint, "gres": slurm.gres or (f"gpu:{slurm.gpus}" if slurm.gpus else None)}
    return {name: value for name, value in named.items() if value is not None} | dict(slurm.options)


def secret_names(settings: Settings) -> tuple[str, ...]:
    """The variables that hold keys and tokens by these settings."""
    own = settings.validation
    names = [own.api_key_env, own.hf_token_env, settings.judge.api_key_env, *_TOKENS]
    return tuple(dict.fromkeys(name for name in names if name))


def job_environment(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """What jobs get around them: no key and no token; SLURM_JWT, where there is one, as sbatch itself needs it."""
    kept = without_secrets(environ, secret_names(settings))
    if "SLURM_JWT" in environ:
        kept["SLURM_JWT"] = environ["SLURM_JWT"]
    return kept | settings.environment


def inner_environment(settings: Settings, environ: Mapping[str, str], added: Mapping[str, str],
                      scratch: Path) -> dict[str, str]:
    """What a module gets around it: no key, no token, no network for the hub's libraries, a scratch of its own."""
    kept = without_secrets(environ, secret_names(settings))
    hub = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
           "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HOME": str(scratch / "hf"),
           "HF_TOKEN_PATH": str(scratch / "no-token")}
    own = {"TMPDIR": str(scratch / "tmp"), "FLOCK_HPC_SCRATCH": str(scratch / "work"), "PYTHONUNBUFFERED": "1"}
    moved = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE"}
    return {name: value for name, value in kept.items() if name not in moved} | dict(added) | hub | own


def scratch_root(environ: Mapping[str, str]) -> Path:
    """Where scratch folders of jobs are made: the job's own folder where the site gives one."""
    for name in ("SLURM_TMPDIR", "TMPDIR"):
        folder = environ.get(name)
        if folder and Path(folder).is_dir():
            return Path(folder).resolve()
    return Path(tempfile.gettempdir()).resolve()


def devices(environ: Mapping[str, str], nodes: Sequence[str]) -> list[str]:
    """GPUs of this machine: those of CUDA_VISIBLE_DEVICES, or else the numbers of `nodes` (/dev/nvidia0, ...)."""
    named = environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [word.strip() for word in named.split(",") if word.strip()]
    numbers = sorted(int(name.removeprefix("nvidia")) for name in nodes if name.removeprefix("nvidia").isdigit())
    return [str(number) for number in numbers]


def share(devices: Sequence[str], worker: int, workers: int) -> str | None:
    """The GPUs of one of several local workers, as CUDA_VISIBLE_DEVICES; None: all, as there are none to share."""
    if not devices:
        return None
    mine = devices[worker % workers::workers] or [devices[worker % len(devices)]]
    return ",".join(mine)
