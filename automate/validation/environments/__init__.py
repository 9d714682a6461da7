"""The outer layer: an isolated environment for each module, built aside and put into place whole.

Importing this runs nothing."""

from automate.validation.environments.building import create
from automate.validation.environments.states import EnvironmentState, inner_call, state

__all__ = ["EnvironmentState", "create", "inner_call", "state"]
