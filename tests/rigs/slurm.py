"""A real Slurm for tests: two nodes with two pretend GPUs each, on one machine, without systemd.

All daemons run as the current user, on free ports and from one temporary folder; nothing else is touched.
A small guard process cleans up even where the process that owns the rig is killed.
From a shell: ``python tests/rigs/slurm.py shell -- CMD...`` or ``python tests/rigs/slurm.py up DIR``.
"""

import contextlib
import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.rigs.machine import answers, free_ports, parent_folder

NODES = ("n1", "n2")
DAEMONS = {"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmscriptd", "slurmd", "slurmstepd"}
FOREIGN = ("SLURM", "SBATCH_", "SRUN_", "SQUEUE_", "SINFO_", "SACCT_", "SALLOC_", "SCANCEL_")
SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"  # where daemons are, often not in a user's PATH
COMMANDS = ["munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "sinfo", "squeue"]
ACCOUNTING_COMMANDS = ["mariadbd", "mariadb-install-db", "slurmdbd", "sacct", "sacctmgr"]

# Settings are separated by any space here and written one to a line.
SLURM_CONF = """
ClusterName=flock SlurmctldHost=localhost(127.0.0.1) SlurmctldPort={ctld} SlurmUser={user} SlurmdUser={user}
AuthInfo=socket={run_dir}/munge/socket,cred_expire={requeue_delay} SlurmdParameters=config_overrides
SlurmctldPidFile={run_dir}/ctld.pid SlurmctldLogFile={run_dir}/log/slurmctld.log StateSaveLocation={run_dir}/state
SlurmdPidFile={run_dir}/%n.pid SlurmdLogFile={run_dir}/log/%n.log SlurmdSpoolDir={run_dir}/%n
ProctrackType=proctrack/linuxproc TaskPlugin=task/none MpiDefault=none GresTypes=gpu MailProg=/bin/true
SelectType=select/cons_tres SelectTypeParameters=CR_Core_Memory DefMemPerCPU=1000 MessageTimeout={message_timeout}
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2 JobRequeue=1 MinJobAge={min_job_age}
ReturnToService=2 TCPTimeout=10 SlurmdTimeout={slurmd_timeout} KillWait={kill_wait} MaxArraySize={max_array_size}
"""
ACCOUNTING_CONF = """
AccountingStorageType=accounting_storage/slurmdbd AccountingStorageTRES=gres/gpu
AccountingStorageHost=127.0.0.1 AccountingStoragePort={dbd} AccountingStoragePass={run_dir}/munge/socket
"""
SLURMDBD_CONF = """
DbdHost=localhost DbdAddr=127.0.0.1 DbdPort={dbd} SlurmUser={user} AuthInfo=socket={run_dir}/munge/socket
PidFile={run_dir}/dbd.pid LogFile={run_dir}/log/slurmdbd.log
StorageType=accounting_storage/mysql StorageHost=localhost StorageUser=root StorageLoc=slurm
"""
NODES_CONF = """
NodeName=n1 Port={n1} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=200000 Gres=gpu:2
NodeName=n2 Port={n2} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=200000 Gres=gpu:2
PartitionName=test Default=YES Nodes=n1,n2 MaxTime=INFINITE State=UP
PartitionName=short Nodes=n1,n2 MaxTime=5 State=UP
{extra}
"""
MARIADB = ["--no-defaults", "--innodb-flush-method=nosync", "--sync-frm=0", "--innodb-log-file-size=8M"]


def available(accounting: bool = True) -> str | None:
    """Why the rig cannot run here, or None when every command it needs is there."""
    needed, path = COMMANDS + ACCOUNTING_COMMANDS * accounting, os.environ.get("PATH", "") + SBIN
    missing = ", ".join(name for name in needed if shutil.which(name, path=path) is None)
    return f"not installed: {missing} (scripts/setup-test-slurm.sh installs them)" if missing else None


def _owned(run_dir: Path, node: str = "") -> Iterator[psutil.Process]:
    """The rig's processes (of one node if named): daemons, job steps and what the jobs started."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            env = process.environ()
            daemon = process.name() in DAEMONS and process.cwd().startswith(f"{run_dir}/{node}")
            job = env.get("SLURM_CONF") == f"{run_dir}/slurm.conf" and "SLURM_JOB_ID" in env
            if daemon or (job and env.get("SLURMD_NODENAME", "").startswith(node)):
                yield from (process, *process.children(recursive=True))


def _sweep(run_dir: Path) -> None:
    """End every process of a rig, whoever started it, and remove its folder."""
    while left := set(_owned(run_dir)):
        for end in (psutil.Process.terminate, psutil.Process.kill):
            for process in left:
                with contextlib.suppress(psutil.Error):
                    end(process)
            left = set(psutil.wait_procs(left, timeout=3)[1])
    shutil.rmtree(run_dir, ignore_errors=True)


@dataclass
class SlurmRig:
    """A small Slurm cluster of its own, there between ``start()`` and ``stop()`` or in a ``with``.

    Times are in seconds. ``requeue_delay`` is how long a requeued job waits (Slurm's own value is 120),
    ``enforce`` is AccountingStorageEnforce, and ``extra`` is appended to slurm.conf as it is. A command waits twice
    ``message_timeout`` for an answer.
    """

    accounting: bool = True
    min_job_age: int = 300
    kill_wait: int = 5
    max_array_size: int = 1001
    enforce: str = ""
    requeue_delay: int = 15
    slurmd_timeout: int = 60
    message_timeout: int = 30
    extra: str = ""
    env: dict[str, str] = field(default_factory=dict, init=False)
    run_dir: Path = field(default=Path(), init=False)
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)
    _guard: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def slurmd_pids(self) -> dict[str, int]:
        """The process id of the slurmd of every node where it runs now."""
        return {node: self._daemons[node].pid for node in NODES if node in self._daemons}

    @property
    def ctld_started(self) -> bool:
        """Whether slurmctld was started and not ended."""
        return "slurmctld" in self._daemons

    def environment(self) -> dict[str, str]:
        """This process's environment with ``env`` added and any other Slurm's variables left out."""
        own = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
        return own | {"PATH": own.get("PATH", "") + SBIN} | self.env

    def run(self, *args: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run one command against this cluster; with ``check`` a failure is a RuntimeError."""
        done = subprocess.run(args, env=self.environment(), capture_output=True, text=True, timeout=timeout)
        if check and done.returncode:
            raise RuntimeError(f"{shlex.join(args)} ended with {done.returncode}: {done.stderr.strip()}")
        return done

    def start(self, timeout: float = 120) -> None:
        """Start everything and wait until both nodes are idle."""
        if reason := available(self.accounting):
            raise RuntimeError(reason)
        self.run_dir = Path(tempfile.mkdtemp(prefix="slurm-rig-", dir=parent_folder()))
        self.run_dir.chmod(0o711)  # munged insists that others may reach its socket
        self.env = {"SLURM_CONF": f"{self.run_dir}/slurm.conf"}
        guard = [sys.executable, str(Path(__file__).resolve()), "guard", str(self.run_dir)]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        try:
            dbd, munge = self._configure(), f"{self.run_dir}/munge"
            options = [f"--{name}={munge}/{name}" for name in ("socket", "key-file", "pid-file", "seed-file")]
            self._spawn("munged", "--foreground", "--force", *options)
            self._wait("munged", lambda: answers(socket.AF_UNIX, f"{munge}/socket"), timeout)
            if self.accounting:
                self._start_accounting(dbd, timeout)
            self._spawn("slurmctld", "-D", "-c")
            for node in NODES:
                self.start_slurmd(node)
            self._wait("nodes", lambda: self.run("sinfo", "-ho%T %D", check=False).stdout == "idle 2\n", timeout)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process of the rig and remove its folder; harmless where it does not run."""
        if self._guard is not None:
            _sweep(self.run_dir)
            self._guard.communicate(b".")
            self._guard = None
            for daemon in self._daemons.values():
                daemon.kill()  # for the case that it could not be found
                daemon.wait()
            self._daemons.clear()

    def restart_ctld(self, timeout: float = 120) -> None:
        """Restart slurmctld from its saved state, as an administrator would, and wait for it."""
        self.stop_ctld(timeout)
        self.start_ctld(timeout)

    def stop_ctld(self, timeout: float = 120, crash: bool = False) -> None:
        """End slurmctld, with `crash` by SIGKILL: nobody answers for the cluster until it is started again."""
        daemon = self._daemons.pop("slurmctld")
        daemon.kill() if crash else daemon.terminate()
        daemon.wait(timeout)

    def start_ctld(self, timeout: float = 120) -> None:
        """Start slurmctld from its saved state and wait for it."""
        self._spawn("slurmctld", "-D")
        self._wait("slurmctld", lambda: "UP" in self.run("scontrol", "ping", check=False).stdout, timeout)

    def kill_slurmd(self, node: str, jobs: bool = False) -> None:
        """Kill a node's slurmd at once; with ``jobs`` also its jobs, as when the whole node dies."""
        slurmd = self._daemons.pop(node)
        slurmd.kill()
        for process in set(_owned(self.run_dir, node)) if jobs else ():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        slurmd.wait()

    def start_slurmd(self, node: str) -> None:
        """Start a node's slurmd, without waiting for the node."""
        self._spawn("slurmd", "-D", "-N", node, name=node)

    def _configure(self) -> tuple[str, int]:
        """Fill the folder with all the daemons need; give the address of slurmdbd."""
        values = dict(vars(self), user=getpass.getuser(), host=socket.gethostname().split(".")[0])
        values |= zip(("ctld", "dbd", *NODES), free_ports(4), strict=True)
        settings = (SLURM_CONF + ACCOUNTING_CONF * self.accounting).format_map(values).split()
        settings += [f"AccountingStorageEnforce={self.enforce}"] * bool(self.enforce)
        with contextlib.suppress(OSError):  # with another address the daemons would not find each other
            if socket.gethostbyname(values["host"]) == "127.0.0.1":
                settings.append("CommunicationParameters=NoInAddrAny,NoCtldInAddrAny")
        files = {
            "slurm.conf": "\n".join(settings) + NODES_CONF.format_map(values),
            "slurmdbd.conf": "\n".join(SLURMDBD_CONF.format_map(values).split()),
            "gres.conf": f"Name=gpu File={self.run_dir}/gpu[0-1]\n",
            "cgroup.conf": "CgroupPlugin=cgroup/v1\n",  # not used, but the default needs systemd or a v1 host
            "munge/key-file": os.urandom(64).hex(),
        }
        for folder in ("log", "state", "munge", *NODES):
            (self.run_dir / folder).mkdir(mode=0o755)
        for name, text in files.items():
            (self.run_dir / name).touch(mode=0o600)
            (self.run_dir / name).write_text(text)
        for name in ("gpu0", "gpu1"):
            (self.run_dir / name).symlink_to("/dev/null")  # Slurm counts only real devices
        return "127.0.0.1", values["dbd"]

    def _start_accounting(self, dbd: tuple[str, int], timeout: float) -> None:
        """Start the database and slurmdbd, then add the cluster, an account and this user."""
        db, user = self.run_dir / "db", getpass.getuser()
        base = [*MARIADB, f"--datadir={db}", f"--user={user}"]
        self.run("mariadb-install-db", *base, "--auth-root-authentication-method=normal", "--skip-test-db")
        db.chmod(0o700)  # the database's root has no password
        self._spawn("mariadbd", *base, "--skip-networking", f"--socket={db}/socket", f"--pid-file={db}/pid")
        self._wait("mariadbd", lambda: answers(socket.AF_UNIX, f"{db}/socket"), timeout)
        self._spawn("slurmdbd", "-D")
        self._wait("slurmdbd", lambda: answers(socket.AF_INET, dbd), timeout)
        for what in ("cluster flock", "account flock", f"user {user} account=flock defaultaccount=flock"):
            self.run("sacctmgr", "-i", "add", *what.split())

    def _spawn(self, command: str, *args: str, name: str = "") -> None:
        """Start a daemon in the foreground of a session of its own."""
        line, env = [command, *args], self.environment() | {"MYSQL_UNIX_PORT": f"{self.run_dir}/db/socket"}
        cwd = self.run_dir / (name or "state")  # by its working folder a process is found again
        with (self.run_dir / f"log/{name or command}.out").open("ab") as log:
            self._daemons[name or command] = subprocess.Popen(
                line, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _wait(self, what: str, ready: Callable[[], bool], timeout: float) -> None:
        """Ask until ready; raise with the ends of the logs where that cannot happen any more."""
        deadline = time.monotonic() + timeout
        while not ready():
            dead = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if dead or time.monotonic() > deadline:
                ends = [f"--- {f.name}\n{f.read_text()[-800:]}" for f in (self.run_dir / "log").glob("*.out")]
                raise RuntimeError("\n".join([f"no {what} (ended: {dead}, limit {timeout:.0f} s)", *ends]))
            time.sleep(0.05)


def _serve(folder: Path) -> None:
    """Start a rig, write the folder's ``env`` file, and stay until told to end."""
    folder.mkdir(parents=True, exist_ok=True)
    part, env = folder / "env.part", folder / "env"
    with SlurmRig() as rig, contextlib.ExitStack() as afterwards:
        part.write_text("".join(f"export {k}={shlex.quote(v)}\n" for k, v in rig.env.items()))
        afterwards.callback(env.unlink, missing_ok=True)
        part.replace(env)
        signal.pause()


def main(argv: Sequence[str]) -> int:
    """Run the command line described at the top of this module."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    match list(argv):
        case ["shell", "--", *command] if command:
            with SlurmRig() as rig:
                return subprocess.run(command, env=rig.environment()).returncode
        case ["up", folder]:
            _serve(Path(folder))
        case ["guard", run_dir]:
            sys.stdin.read(1)  # a byte, or the end of input where the owner was killed
            _sweep(Path(run_dir))
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
