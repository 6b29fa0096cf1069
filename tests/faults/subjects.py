"""What is run under faults of the disk and under losses of power: the audit service, its second copy and the witness."""

import hashlib
import subprocess
import tempfile
from pathlib import Path

# A process that hangs is killed, and what it acknowledged has to be there all the same.
PATIENCE = 60


class Subject:
    """A program: what it does with its files in a directory, and how that is checked."""

    def __init__(self, name, prepare, work, check, files, flushed):
        self.name, self.prepare, self.work, self.check, self.files = name, prepare, work, check, files
        # The ends of the names of files that have to be written and flushed before anything is acknowledged.
        self.flushed = flushed

    def fresh(self):
        """A directory in which it can work."""
        directory = Path(tempfile.mkdtemp())
        if self.prepare:
            subprocess.run(self.prepare(directory), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return directory

    def problem(self, directory, printed):
        """Why not everything that it said in `printed` is true of the directory; None if all of it is."""
        checked = subprocess.run(self.check(directory), input=printed, capture_output=True, timeout=PATIENCE)
        return checked.stderr.decode().strip() if checked.returncode else None


def store(directory):
    return f"sqlite:{directory / 'audit.sqlite'}"


def audit_service(examples, count):
    audit = str(examples / "disk_faults")
    return Subject(
        "audit service",
        lambda directory: [audit, "append", store(directory), "2"],
        lambda directory: [audit, "append", store(directory), str(count)],
        lambda directory: [audit, "check", store(directory), str(directory / "checked")],
        lambda directory: [
            directory,
            *(directory / f"audit.sqlite{suffix}" for suffix in ("", "-wal", "-shm", "-journal", ".lock")),
        ],
        ["-wal"],
    )


def new_store(examples, count):
    """The audit service where there is no store yet."""
    subject = audit_service(examples, count)
    subject.name, subject.prepare = "new store", None
    return subject


def second_copy(examples, count):
    audit = str(examples / "disk_faults")
    # As many as a few failures can make.
    records = [f"records-{first:020}-{number}.jsonl" for first in range(12) for number in range(3)]
    files = ["probe", "checkpoint", *records, *(f"checkpoint-{size}" for size in range(12))]
    return Subject(
        "second copy",
        lambda directory: [
            "sh",
            "-c",
            'mkdir "$1" && touch "$1/wardgate-second-copy" && exec "$2" append "$3" 2 "$1"',
            "sh",
            str(directory / "copy"),
            audit,
            store(directory),
        ],
        lambda directory: [audit, "append", store(directory), str(count), str(directory / "copy")],
        lambda directory: [audit, "check", store(directory), str(directory / "checked"), str(directory / "copy")],
        lambda directory: [directory / "copy", *(directory / "copy" / name for name in files)],
        ["-wal", ".jsonl"],
    )


def witness(examples, count):
    witness = str(examples / "witness_disk_faults")
    # Called by the hash of the log's name.
    log = hashlib.sha256(b"example.com/faults").hexdigest()
    files = [f"{log}.checkpoint", f"{log}.new"]
    return Subject(
        "witness",
        lambda directory: [witness, "cosign", str(directory / "seen"), "0"],
        lambda directory: [witness, "cosign", str(directory / "seen"), str(count)],
        lambda directory: [witness, "check", str(directory / "seen")],
        lambda directory: [directory / "seen", *(directory / "seen" / name for name in files)],
        [".new"],
    )
