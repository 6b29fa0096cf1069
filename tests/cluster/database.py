"""PostgreSQL servers for the pods, and their failures."""

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from network import FAMILY, NETWORKS, Namespace, in_url, sh

BIN = Path(os.environ["POSTGRES_BIN"])
# Large enough for the data of a journey, small enough to be filled.
DISK = "384m"


class Database:
    """A server with its own address. With its own disk, the disk can be made full or slow (see slow_disk.c)."""

    def __init__(self, name, slow_disk=None):
        self.name, self.network = name, Namespace()
        self.directory = Path(os.environ["SCRATCH"]) / name
        self.disk = self.directory / "disk"
        self.disk.mkdir(parents=True)
        self.environment = dict(os.environ)
        if slow_disk:
            sh("mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", self.disk)
            self.delay = self.directory / "delay"
            self.environment |= {"LD_PRELOAD": str(slow_disk), "SLOW_DISK": str(self.delay)}
        for path in (self.directory, self.disk):
            shutil.chown(path, "nobody")
        self.data, self.log = self.disk / "data", self.directory / "log"
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--wal-segsize=1")
        with open(self.data / "pg_hba.conf", "a") as hba:
            for network in NETWORKS[FAMILY]:
                # The network is private, and SCRAM takes much CPU time in an unoptimised client.
                hba.write(f"host all all {network.format(0, 0)} password\n")
        self.start()

    def url(self, role, password=None):
        """The address for a role. Without a password, the client reads it from a file."""
        role = f"{role}:{password}" if password else role
        return f"postgres://{role}@{in_url(self.network.address)}/postgres?sslmode=disable"

    def run(self, tool, *words):
        # PostgreSQL refuses to run as root.
        command = ["ip", "netns", "exec", self.network.name, "setsid", "--wait", "runuser", "-u", "nobody", "--", BIN / tool]
        return sh(*command, *words, stdout=subprocess.DEVNULL, env=self.environment)

    def start(self):
        options = f"-h {','.join(self.network.addresses)} -k {self.directory} -c max_connections=300 -c shared_buffers=32MB"
        options += " -c max_wal_size=32MB -c min_wal_size=8MB"
        self.run("pg_ctl", "-D", self.data, "-w", "-s", "-l", self.log, "-o", options, "start")

    def stop(self, mode="fast"):
        self.run("pg_ctl", "-D", self.data, "-m", mode, "-s", "-w", "stop")

    def pid(self):
        """The process id of the postmaster, or None if it has exited."""
        file = self.data / "postmaster.pid"
        if not file.exists():
            return None
        pid = int(file.read_text().splitlines()[0])
        return pid if Path(f"/proc/{pid}").exists() else None

    def kill(self):
        """Kills the postmaster and all its child processes at once."""
        pid = self.pid()
        below = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
        for victim in [pid, *map(int, below)]:
            # Some may have exited in the meantime.
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        while self.pid():
            time.sleep(0.05)

    def fill(self):
        """Fills the disk completely."""
        with open(self.disk / "filler", "ab", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(65536))
            except OSError:
                pass

    def empty(self):
        (self.disk / "filler").unlink()

    def slow(self, milliseconds):
        """Delays each flush to the disk."""
        self.delay.write_text(str(milliseconds))

    def psql(self, role, statement):
        return [BIN / "psql", "-h", self.directory, "-U", role, "-At", "-c", statement, "postgres"]

    def query(self, statement):
        return sh(*self.psql("postgres", statement), capture_output=True, text=True).stdout.strip()

    def refuses(self, role, statement):
        """Whether the role is not permitted to run the statement."""
        done = subprocess.run(self.psql(role, statement), capture_output=True, text=True)
        return done.returncode != 0 and ("permission denied" in done.stderr or "must be owner" in done.stderr)

    def close(self):
        if pid := self.pid():
            os.kill(pid, signal.SIGQUIT)
