"""The programs that are tested with disk faults and power losses: the audit service, its second copy and the witness."""

import hashlib
import subprocess
import tempfile
from pathlib import Path

# Seconds after which a hanging process is killed. Everything that it acknowledged must still exist.
PATIENCE = 60


class Subject:
    """A program under test: its work on files in a directory, and the command that checks the result."""

    def __init__(self, name, prepare, work, check, files, flushed):
        self.name, self.prepare, self.work, self.check, self.files = name, prepare, work, check, files
        # Suffixes of the files that must be written and flushed before an acknowledgement.
        self.flushed = flushed

    def fresh(self):
        """A new directory for the program."""
        directory = Path(tempfile.mkdtemp())
        if self.prepare:
            subprocess.run(self.prepare(directory), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return directory

    def problem(self, directory, printed):
        """The problem if the directory does not contain everything that `printed` acknowledges, or None."""
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


def audit_service_on_new_store(examples, count):
    """The audit service without an existing store."""
    subject = audit_service(examples, count)
    subject.name, subject.prepare = "audit service on a new store", None
    return subject


def second_copy(examples, count):
    audit = str(examples / "disk_faults")
    # All file names that a few failures can produce.
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
    # The files are named after the hash of the log's origin.
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
