"""Where the local queue's jobs run: this machine as the only node. A rehearsed cluster is another such place.

Never starts or ends a job by itself."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence

from automate.cluster.local.executor import LocalQueue
from automate.cluster.local.jobs import KILL_WAIT, Running
from automate.cluster.local.schedule import Node


class Place(ABC):
    """What a runner needs to know of its nodes. Times are real seconds."""

    own_machine = True
    tick = 0.2
    queue_wait = 0.0
    requeue_delay = 1.0
    kill_wait = KILL_WAIT

    @property
    @abstractmethod
    def nodes(self) -> Sequence[Node]:
        """The nodes that there are."""

    def environ(self, node: str) -> dict[str, str]:
        """Variables of jobs on a node, beside those of every job."""
        del node
        return {}

    def avoid(self, node: str) -> list[str]:
        """The node of a job that is put into the queue again, where it should not start there again."""
        del node
        return []

    def step(self, running: Sequence[Running], queue: LocalQueue) -> None:
        """Let happen what happens now; on an ordinary machine, nothing."""
        del running, queue

    def stays_open(self, *, default: bool = False) -> bool:
        """Whether more jobs are expected though the queue is empty; `default` where nobody says."""
        return default


class ThisMachine(Place):
    """This machine, with as many jobs at a time as the submissions say."""

    def __init__(self) -> None:
        self._nodes = (Node(socket.gethostname()),)

    @property
    def nodes(self) -> Sequence[Node]:
        return self._nodes
