"""Changes an exported record in many ways, and wants `verify_log.py` to refuse each: `tamper_log.py DIR VKEY`."""

import functools
import sys
from pathlib import Path

import verify_log
from verify_log import Refused, entries_of, leaf_hash, root_of, tile_path, verify_directory

# The bytes of a file of which one is changed at a time.
BYTES = 120
# The entries of which one is dropped, swapped or doubled at a time.
ENTRIES = 40

# A signature is as right the second time.
verify_log.verify_signature = functools.lru_cache(maxsize=None)(verify_log.verify_signature)


def is_refused(directory, vkey):
    try:
        verify_directory(directory, vkey)
    except (Refused, OSError, ValueError, LookupError):
        return True
    return False


def write(directory, entries):
    """Files of `entries` that fit each other."""
    lines = b"".join(b'{"sequence":%d,"record":%s}\n' % it for it in enumerate(entries))
    (directory / "records.jsonl").write_bytes(lines)
    level, hashes = 0, [leaf_hash(entry) for entry in entries]
    for start in range(0, len(entries), 256):
        bundle = entries[start : start + 256]
        path = directory / tile_path("entries", start // 256, len(bundle))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(len(entry).to_bytes(2, "big") + entry for entry in bundle))
    while hashes:
        for start in range(0, len(hashes), 256):
            tile = hashes[start : start + 256]
            path = directory / tile_path(str(level), start // 256, len(tile))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join(tile))
        hashes = [root_of(hashes[at : at + 256]) for at in range(0, len(hashes) // 256 * 256, 256)]
        level += 1


def main():
    directory, vkey = Path(sys.argv[1]), sys.argv[2]
    size = verify_directory(directory, vkey)
    refused = 0
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        original = path.read_bytes()
        for at in range(0, len(original), max(1, len(original) // BYTES)):
            changed = bytearray(original)
            changed[at] ^= 1 << at % 8
            path.write_bytes(changed)
            if not is_refused(directory, vkey):
                sys.exit(f"byte {at} of {path} was changed and not noticed")
            path.write_bytes(original[:at])
            if not is_refused(directory, vkey):
                sys.exit(f"{path} was cut off at {at} and that not noticed")
            refused += 2
        path.write_bytes(original)
    bundles = [
        (directory / tile_path("entries", start // 256, min(256, size - start))).read_bytes()
        for start in range(0, size, 256)
    ]
    entries = [entry for bundle in bundles for entry in entries_of(bundle)]
    for at in range(0, size - 1, max(1, size // ENTRIES)):
        dropped = entries[:at] + entries[at + 1 :]
        swapped = entries[:at] + [entries[at + 1], entries[at]] + entries[at + 2 :]
        doubled = entries[:at] + [entries[at + 1]] + entries[at + 1 :]
        for name, forged in [("dropped", dropped), ("swapped", swapped), ("doubled", doubled)]:
            write(directory, forged)
            if not is_refused(directory, vkey):
                sys.exit(f"entry {at} was {name} and that not noticed")
            refused += 1
    write(directory, entries)
    verify_directory(directory, vkey)
    print(f"{refused} forgeries refused")


if __name__ == "__main__":
    main()
