"""Flock validation's part of `validate-only`: its checks as findings, where validation is in use.

Holds no check of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from automate.arena.preflight.check import Report
from automate.arena.preflight.findings import Finding, Level
from automate.errors import ConfigError
from automate.workspace import Workspace

if TYPE_CHECKING:
    from automate.validation.api import FlockApi


def validation_in_use(workspace: Workspace) -> bool:
    """Whether the settings have a `validation` section, or an assignment was ever fetched."""
    return "validation" in workspace.settings.model_fields_set or workspace.validation.spool.is_dir()


def validation_report(workspace: Workspace, environ: Mapping[str, str] | None = None) -> Report:
    """The findings on Flock validation; none of them concerns a model of a campaign."""
    from automate.validation.checking import check_config
    from automate.validation.preflight import checks
    from automate.validation.spool import Spool

    env = os.environ if environ is None else environ
    places = workspace.validation

    def config(module: str, task_id: str) -> None:
        check_config(places, workspace.settings, env, module, task_id)

    found = checks(places, Spool(places), environ=env, api=lambda: _api(workspace, env), config=config)
    return Report(tuple(Finding(one.code, Level(one.level), one.subject, one.what, one.todo) for one in found), (), ())


def _api(workspace: Workspace, environ: Mapping[str, str]) -> FlockApi:
    from automate.validation.api import FlockApi
    from automate.validation.audit import Audit
    from automate.validation.secrets import read_key

    places = workspace.validation
    key = read_key(environ, places.settings.api_key_env)
    if key is None:
        raise ConfigError("there is no API key", where=places.settings.api_key_env)
    return FlockApi(places.settings.model_copy(update={"retries": min(places.settings.retries, 1)}), key,
                    Audit(places.audit))
