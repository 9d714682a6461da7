"""From a job to the text of its script: one pure function, and Jinja templates.

Every value is quoted for the shell; nothing secret is ever given to it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import jinja2

from automate.errors import ConfigError
from automate.resources import templates_dir
from automate.settings import Slurm


def _quote(value: object) -> str:
    return shlex.quote(str(value))


def _comment(value: object) -> str:
    """Text that can't leave the comment it stands in."""
    return "".join(char if char.isprintable() else "?" for char in str(value))


@cache
def _environment(own: Path | None) -> jinja2.Environment:
    folders = [str(folder) for folder in (own, templates_dir()) if folder is not None]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders), undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True, autoescape=False)  # noqa: S701 - shell, quoted by `q`
    environment.filters.update(q=_quote, comment=_comment)
    return environment


def directive(name: str, value: object) -> str:
    """One #SBATCH line; a value with spaces is quoted as sbatch reads it."""
    text = str(value)
    if any(ord(char) < 32 for char in text):
        raise ConfigError(f"the value of --{name} holds a control character", where=f"slurm.{name}")
    quoted = _quote(text).replace("\\", "\\\\")  # sbatch takes a backslash as an escape in any quotes
    return f"#SBATCH --{name}={quoted}"


def log_pattern(folder: Path, tail: str) -> str:
    """A log's path for sbatch: per cent signs of the folder are escaped, those of `tail` are patterns."""
    return str(folder).replace("%", "%%") + "/" + tail


def directives(slurm: Slurm, *, name: str, output: str, error: str, array: str | None = None,
               gpus: bool = True, signal: str | None = None) -> list[str]:
    """All #SBATCH lines of a job, in a fixed order.

    `gpus` False asks for none. With a `signal` (Slurm's B:NAME@SECONDS) the job may be requeued, which it asks for.
    """
    values: list[tuple[str, object]] = [("job-name", name), ("output", output), ("error", error)]
    if "open-mode" not in slurm.options:
        values.append(("open-mode", "append"))  # a requeued job keeps what it wrote before
    if array:
        values.append(("array", array))
    if signal and "signal" not in slurm.options:
        values.append(("signal", signal))
    options = dict(slurm.options)
    if signal and not {"requeue", "no-requeue"} & options.keys():
        options = {"requeue": True, **options}
    fixed = [(key, options.pop(key, 1)) for key in ("nodes", "ntasks-per-node")]
    values += [(key, value) for key, value in fixed if value is not None and value is not False]
    named: Sequence[tuple[str, object | None]] = (
        ("cpus-per-task", slurm.cpus_per_task), ("mem", slurm.mem), ("time", slurm.time),
        ("partition", slurm.partition), ("account", slurm.account), ("qos", slurm.qos),
        ("constraint", slurm.constraint), ("exclude", slurm.exclude))
    values += [(key, value) for key, value in named if value is not None]
    if gpus and (slurm.gres or slurm.gpus):
        values.append(("gres", slurm.gres or f"gpu:{slurm.gpus}"))
    lines = [directive(key, value) for key, value in values]
    for key, value in options.items():
        if value is True or value is None:
            lines.append(f"#SBATCH --{key}")
        elif value is not False:
            lines.append(directive(key, value))
    return lines


def render(template: str, context: Mapping[str, object], own_templates: Path | None = None) -> str:
    """Render a job script; a workspace's own templates win. Raises ConfigError naming template and line."""
    own = own_templates if own_templates is not None and own_templates.is_dir() else None
    try:
        return _environment(own).get_template(template).render(**context)
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(f"template error: {error.message}", where=f"{error.filename}:{error.lineno}") from error
    except jinja2.TemplateError as error:
        raise ConfigError(f"template error: {error}", where=template) from error
