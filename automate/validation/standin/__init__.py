"""Stand-ins of the services that validation talks to, for tests and rehearsals; what they hold means nothing.

`StandIn` is the API's."""

from automate.validation.standin.plan import Content, Fault, Plan, TaskPlan
from automate.validation.standin.server import StandIn

__all__ = ["Content", "Fault", "Plan", "StandIn", "TaskPlan"]
