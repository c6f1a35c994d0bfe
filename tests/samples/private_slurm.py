"""A Slurm cluster of its own for tests: real daemons, four nodes on this machine, no systemd.

Everything lies in one folder and listens on ports that were free, so that several may run beside
each other. Limits of time are short: a cluster would wait minutes where this one waits seconds. The
daemons are children of the test and end with it, even if it is killed.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from running import is_running, until

NODES = 4
CPUS = 2  # of each node, whatever this machine has
KILL_WAIT_S = 5
STOPPING_S = 3
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "setpriv")
WHERE = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
CGROUPS = Path("/sys/fs/cgroup")

needs_slurm = pytest.mark.skipif(
    not all(shutil.which(name, path=WHERE) for name in PROGRAMS),
    reason="Slurm is not installed (slurmctld, slurmd, slurm-client, munge)",
)
has_cgroups = all(os.access(CGROUPS / name, os.W_OK) for name in ("memory", "freezer"))


class PrivateSlurm:
    """A running cluster; `environment` makes it the one that client programs speak to."""

    def __init__(self, folder: Path, *, with_cgroups: bool = False) -> None:
        self.folder = folder
        self._with_cgroups = with_cgroups
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = _free_ports(NODES + 1)
        self.nodes = [f"n{port}" for port in self._ports[1:]]  # a name that no other cluster has
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        for name in ("state", "logs", "spool", "pids"):
            (self.folder / name).mkdir()
        (self.folder / "slurm.conf").write_text(self._configuration())
        if self._with_cgroups:
            (self.folder / "cgroup.conf").write_text(CGROUP_CONFIGURATION)
        self._start_munge()
        self._start_daemon("slurmctld", "slurmctld", "-D")
        for name in self.nodes:
            self.start_node(name)
        until(lambda: self.ask("sinfo", "-h", "-t", "idle", "-o", "%D") == str(NODES))

    def start_node(self, name: str) -> None:
        self._start_daemon(name, "slurmd", "-D", "-N", name)

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        places = {
            "key-file": key,
            "socket": self._socket,
            "pid-file": self.folder / "pids/munged.pid",
            "log-file": self.folder / "logs/munged.log",
            "seed-file": self.folder / "munge.seed",
        }
        options = [f"--{name}={place}" for name, place in places.items()]
        self._start_daemon("munged", "munged", "--foreground", "--force", *options)
        until(self._socket.exists)

    @property
    def _socket(self) -> Path:
        return self.folder / "munge.socket"

    def _start_daemon(self, name: str, program: str, *words: str) -> None:
        path = shutil.which(program, path=WHERE)
        assert path is not None
        with (self.folder / f"logs/{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", path, *words],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def ask(self, *words: str, check: bool = True, cwd: Path | None = None) -> str:
        """What a client program of Slurm answers."""
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 0 or not check, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def jobs(self) -> dict[str, str]:
        """The state of every job that is not over: `7_1` or `8`, and RUNNING or whatever."""
        lines = self.ask("squeue", "--noheader", "--array", "--format", "%i %T").splitlines()
        return dict(line.split()[:2] for line in lines)

    def wait_until_over(self, within_s: float = 90) -> None:
        """Until no job is queued.

        One that was requeued waits for `cred_expire` and a second. It must: in the second in which
        it ended, its node would refuse it as one that was killed.
        """
        until(lambda: not self.jobs(), within_s=within_s, what="all jobs over")

    def node_of(self, job: str) -> str:
        return self.ask("squeue", "-h", "--array", "-j", job, "-o", "%N")

    def kill_node(self, name: str) -> None:
        """All that runs on a node ends, as if its power was cut."""
        daemon, steps = self._daemons[name], self._steps_of(name)
        for one in [daemon.pid, *steps, *(pid for step in steps for pid in descendants(step))]:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        daemon.wait()

    def stop(self) -> None:
        """End all of it, whatever state it is in."""
        with suppress(subprocess.SubprocessError, AssertionError):
            self.ask("scancel", "--user", getpass.getuser(), check=False)
            until(lambda: not self.jobs(), within_s=KILL_WAIT_S + 5)
        steps = [step for name in self.nodes for step in self._steps_of(name)]
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(STOPPING_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for step in filter(is_running, steps):
            with suppress(ProcessLookupError):
                os.kill(step, signal.SIGKILL)
        if self._with_cgroups:
            _remove_cgroups(f"slurm_{name}" for name in self.nodes)

    def _steps_of(self, node: str) -> list[int]:
        """The processes that watch the jobs of a node: they write to its log."""
        log, found = str(self.folder / f"logs/slurmd.{node}.log"), []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if b"slurmstepd" in path.read_bytes() and log in _open_files(path.parent):
                    found.append(int(path.parent.name))
        return found

    def _configuration(self) -> str:
        host, user, place = socket.gethostname().split(".")[0], getpass.getuser(), self.folder
        kind = "cgroup" if self._with_cgroups else "linuxproc"
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} "
            "RealMemory=4000 State=UNKNOWN"
            for name, port in zip(self.nodes, self._ports[1:], strict=True)
        )
        return f"""
ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={self._ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={self._socket},cred_expire=5
SlurmctldPidFile={place}/pids/slurmctld.pid
SlurmdPidFile={place}/pids/slurmd.%n.pid
SlurmctldLogFile={place}/logs/slurmctld.log
SlurmdLogFile={place}/logs/slurmd.%n.log
SlurmdSpoolDir={place}/spool/%n
StateSaveLocation={place}/state
ProctrackType=proctrack/{kind}
TaskPlugin=task/{"cgroup" if self._with_cgroups else "none"}
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=500
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
MpiDefault=none
SwitchType=switch/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={place}/logs/jobs.txt
KillWait={KILL_WAIT_S}
MinJobAge=300
MaxArraySize=101
SlurmdTimeout=10
ReturnToService=2
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=usual Nodes=ALL Default=YES State=UP PriorityTier=1 GraceTime=0
PartitionName=urgent Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF
"""


CGROUP_CONFIGURATION = """
CgroupPlugin=cgroup/v1
CgroupAutomount=no
ConstrainRAMSpace=yes
"""


@contextmanager
def private_slurm(folder: Path, *, with_cgroups: bool = False) -> Iterator[PrivateSlurm]:
    """A cluster for as long as it is needed."""
    slurm = PrivateSlurm(folder, with_cgroups=with_cgroups)
    with ExitStack() as stack:
        stack.callback(slurm.stop)
        slurm.start()
        yield slurm


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has: all are taken before any is let go."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _open_files(process: Path) -> list[str]:
    found = []
    for path in (process / "fd").iterdir():
        with suppress(OSError):
            found.append(os.readlink(path))
    return found


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def _remove_cgroups(names: Iterable[str]) -> None:
    for name in names:
        for top in CGROUPS.glob(f"*/{name}"):
            folders = sorted((p for p in top.rglob("*") if p.is_dir()), reverse=True)
            for folder in [*folders, top]:
                with suppress(OSError):
                    folder.rmdir()
