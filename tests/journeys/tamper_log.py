"""Forges the data of a log in many ways, and checks that `verify_log.py` refuses each: `tamper_log.py DIR VKEY [--step N]`.

`DIR` contains `export` (an exported audit log), `proofs` (one proof per file), `older` (earlier checkpoints, named by their
sizes), `submissions` (to a witness, named `OLD-NEW`), `cosigned` (checkpoints with the cosignatures that the file `policy`
requires) and `forks` (signed checkpoints of the same size, in which the record with the number in the file name differs). Tries
every byte of every file, every entry and every fork, or every N-th with --step.
"""

import argparse
import functools
import sys
from pathlib import Path

import verify_log
from verify_log import Refused, leaf_hash, open_checkpoint, require, root_of, tile_path
from verify_log import verify_directory, verify_proof, verify_submission

# The record that replaces another one in a fork.
REPLACED = b'{"n":"another record"}'


def remembered(function, size):
    """Caches the results of a function, including refusals, because most of a log does not change."""

    @functools.lru_cache(maxsize=size)
    def outcome(*arguments):
        try:
            return function(*arguments), None
        except (Refused, ValueError, LookupError) as refusal:
            return None, refusal

    def remembering(*arguments):
        value, refusal = outcome(*(tuple(it) if isinstance(it, list) else it for it in arguments))
        if refusal is not None:
            raise refusal.with_traceback(None)
        return value

    return remembering


verify_log.verify_signature = remembered(verify_log.verify_signature, None)
verify_log.is_signed = remembered(verify_log.is_signed, 4096)
verify_log.records_of = remembered(verify_log.records_of, 64)
verify_log.root_of = remembered(verify_log.root_of, 4096)
verify_log.leaf_hash = remembered(verify_log.leaf_hash, 4096)


class Tampering:
    """Counts refused forgeries, and ends the run with the accepted ones."""

    def __init__(self, vkey, step):
        self.vkey, self.step, self.refused = vkey, step, 0

    def sample(self, count, offset=0):
        """The indices below the count that are tried. They differ by offset."""
        return range(offset % self.step, count, self.step)

    def refuse(self, what, verify, *arguments, **options):
        try:
            verify(*arguments, **options)
        except (Refused, OSError, ValueError, LookupError):
            self.refused += 1
            return
        sys.exit(f"{what}, and that was not noticed")

    def changes(self, original, offset=0):
        """Yields byte strings with one bit changed, and truncated ones, each with a description."""
        for at in self.sample(len(original), offset):
            yield f"byte {at} was changed", original[:at] + bytes([original[at] ^ 1 << at % 8]) + original[at + 1 :]
            yield f"it was cut off at {at}", original[:at]

    def tamper_with_files(self, export):
        for path in sorted(path for path in export.rglob("*") if path.is_file()):
            original = path.read_bytes()
            for what, changed in self.changes(original):
                path.write_bytes(changed)
                self.refuse(f"{path}: {what}", verify_directory, export, self.vkey)
            path.write_bytes(original)

    def tamper_with_entries(self, export, entries):
        for at in self.sample(len(entries) - 1):
            before, this, following, after = entries[:at], entries[at], entries[at + 1], entries[at + 2 :]
            forgeries = {
                "dropped": before + [following] + after,
                "dropped and one added": before + [following] + after + [REPLACED],
                "swapped": before + [following, this] + after,
                "doubled": before + [this, this, following] + after,
                "replaced by the next": before + [following, following] + after,
            }
            for name, forged in forgeries.items():
                write(export, forged)
                self.refuse(f"entry {at} was {name}", verify_directory, export, self.vkey)
        write(export, entries)

    def tamper_with_texts(self, directory, verify):
        """Tries forgeries of files that are verified separately."""
        for offset, path in enumerate(sorted(directory.iterdir())):
            original = path.read_bytes()
            verify(path, original)
            for what, changed in self.changes(original, offset):
                self.refuse(f"{path}: {what}", verify, path, changed)

    def tamper_with_history(self, directory, entries):
        """Presents older logs to a client that saw a newer one, and forks to a client that saw the changed record."""
        export = directory / "export"
        newest = (export / "checkpoint").read_bytes()
        notes = {int(path.name): path.read_bytes() for path in (directory / "older").iterdir()}
        notes[len(entries)] = newest
        seen = {size: self.open(note) for size, note in notes.items()}
        for size, note in notes.items():
            write(export, entries[:size])
            (export / "checkpoint").write_bytes(note)
            for older, head in seen.items():
                if older <= size:
                    verify_directory(export, self.vkey, older=head)
                else:
                    what = f"{size} records were served to who saw {older}"
                    self.refuse(what, verify_directory, export, self.vkey, older=head)
        for at in self.sample(len(entries)):
            write(export, entries[:at] + [REPLACED] + entries[at + 1 :])
            (export / "checkpoint").write_bytes((directory / "forks" / str(at)).read_bytes())
            for older, head in seen.items():
                if older <= at:
                    verify_directory(export, self.vkey, older=head)
                else:
                    what = f"record {at} is another one than it was for who saw {older}"
                    self.refuse(what, verify_directory, export, self.vkey, older=head)
        write(export, entries)
        (export / "checkpoint").write_bytes(newest)

    def open(self, note):
        return open_checkpoint(note.decode(), self.vkey)

    def run(self, directory):
        export = directory / "export"
        size = verify_directory(export, self.vkey)
        entries = []
        for start in range(0, size, 256):
            width = min(256, size - start)
            bundle = (export / tile_path("entries", start // 256, width)).read_bytes()
            entries += verify_log.records_of(bundle, start, width)[0]
        self.tamper_with_files(export)
        self.tamper_with_entries(export, entries)
        self.tamper_with_texts(directory / "proofs", lambda _, text: verify_proof(text.decode(), self.vkey))
        older = {path.name: self.open(path.read_bytes()) for path in (directory / "older").iterdir()}

        def verify(path, text):
            verify_submission(text.decode(), self.vkey, older=older[path.name.split("-")[0]])

        self.tamper_with_texts(directory / "submissions", verify)
        policy = (directory / "policy").read_text()
        cosigned = directory / "cosigned"
        self.tamper_with_texts(cosigned, lambda _, text: open_checkpoint(text.decode(), self.vkey, policy))
        self.tamper_with_history(directory, entries)
        require(verify_directory(export, self.vkey) == size, "the export is not as it was")


def write(directory, entries):
    """Writes consistent files for `entries`. Existing files are kept."""

    def write_file(name, content):
        path = directory / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    write_file("records.jsonl", b"".join(b'{"sequence":%d,"record":%s}\n' % it for it in enumerate(entries)))
    level, hashes = 0, [leaf_hash(entry) for entry in entries]
    for start in range(0, len(entries), 256):
        bundle = entries[start : start + 256]
        content = b"".join(len(entry).to_bytes(2, "big") + entry for entry in bundle)
        write_file(tile_path("entries", start // 256, len(bundle)), content)
    while hashes:
        for start in range(0, len(hashes), 256):
            tile = hashes[start : start + 256]
            write_file(tile_path(str(level), start // 256, len(tile)), b"".join(tile))
        hashes = [verify_log.root_of(hashes[at : at + 256]) for at in range(0, len(hashes) // 256 * 256, 256)]
        level += 1


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("directory", type=Path)
    arguments.add_argument("vkey")
    arguments.add_argument("--step", type=int, default=1)
    given = arguments.parse_args()
    tampering = Tampering(given.vkey, given.step)
    tampering.run(given.directory)
    print(f"{tampering.refused} forgeries refused")


if __name__ == "__main__":
    main()
