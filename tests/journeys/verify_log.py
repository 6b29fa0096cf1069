"""Verifies an exported record or a proof, without any code of Wardgate: `verify_log.py DIR|BUNDLE VKEY`.

A second implementation of what `wardgate audit verify` does, from the specifications alone: RFC 6962 and RFC 8032,
c2sp.org/signed-note, tlog-checkpoint, tlog-tiles and tlog-proof. Exit code 0: everything is as the log signed it.
"""

import base64
import hashlib
import sys
from pathlib import Path


class Refused(Exception):
    """Something is not as the log signed it."""


def require(condition, problem):
    if not condition:
        raise Refused(problem)


# Ed25519 (RFC 8032, section 5.1.7)
P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(a, b):
    """The sum of two points in extended coordinates."""
    m = (a[1] - a[0]) * (b[1] - b[0]) % P
    n = (a[1] + a[0]) * (b[1] + b[0]) % P
    c, d = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = n - m, d - c, d + c, n + m
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply(scalar, point):
    product = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            product = add(product, point)
        point = add(point, point)
        scalar >>= 1
    return product


def decompress(encoded):
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    require(y < P, "a point of the curve is not encoded as it must be")
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    require((x * x - square) % P == 0 and not (x == 0 and sign), "there is no such point on the curve")
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


BASE = decompress((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def verify_signature(public, message, signature):
    require(len(public) == 32 and len(signature) == 64, "a key or a signature does not have its length")
    key, commitment = decompress(public), decompress(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    require(scalar < ORDER, "the signature is not reduced")
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % ORDER
    left, right = multiply(scalar, BASE), add(commitment, multiply(challenge, key))
    equal = all((left[i] * right[2] - right[i] * left[2]) % P == 0 for i in (0, 1))
    require(equal, "the signature of the checkpoint is wrong")


# Merkle tree (RFC 6962, section 2.1)
def leaf_hash(entry):
    return hashlib.sha256(b"\0" + entry).digest()


def node_hash(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


def root_of(hashes):
    if not hashes:
        return hashlib.sha256().digest()
    if len(hashes) == 1:
        return hashes[0]
    middle = 1 << (len(hashes) - 1).bit_length() - 1
    return node_hash(root_of(hashes[:middle]), root_of(hashes[middle:]))


def root_by_path(leaf, index, size, path):
    """The root that `path` leads to, from its end: the definition of PATH, read backwards."""
    require(index < size, "there is no such entry in the tree")
    if size == 1:
        require(not path, "the path is too long")
        return leaf
    require(path, "the path is too short")
    middle = 1 << (size - 1).bit_length() - 1
    if index < middle:
        return node_hash(root_by_path(leaf, index, middle, path[:-1]), path[-1])
    return node_hash(path[-1], root_by_path(leaf, index - middle, size - middle, path[:-1]))


# Texts
def decode(text):
    decoded = base64.b64decode(text, validate=True)
    require(base64.b64encode(decoded).decode() == text, "base64 that is not canonical")
    return decoded


def decimal(text):
    require(text.isascii() and text.isdigit() and str(int(text)) == text, "not a decimal number")
    return int(text)


def open_checkpoint(note, vkey):
    """Size and root of a checkpoint, where the key signed it."""
    require(all(c == "\n" or c >= " " for c in note), "a control character in a note")
    name, key_id, key = vkey.split("+", 2)
    key = decode(key)
    require(key[0] == 1, "not a key of a log")
    expected = hashlib.sha256(name.encode() + b"\n" + key).digest()[:4]
    require(expected.hex() == key_id, "the key's id is not that of the key")
    text, separator, lines = note.rpartition("\n\n")
    require(separator and lines.endswith("\n"), "not a signed note")
    text += "\n"
    signed = False
    for line in lines[:-1].split("\n"):
        dash, signer, encoded = line.split(" ")
        require(dash == "\u2014" and signer, "a signature line is malformed")
        signature = decode(encoded)
        if signer == name and signature[:4] == expected:
            verify_signature(key[1:], text.encode(), signature[4:])
            signed = True
    require(signed, "the checkpoint is not signed by this key")
    origin, size, root = text[:-1].split("\n")[:3]
    require(origin == name, "the checkpoint is of another log")
    return decimal(size), decode(root)


def verify_proof(text, vkey):
    lines, _, note = text.partition("\n\n")
    first, extra, index, *path = lines.split("\n")
    require(first == "c2sp.org/tlog-proof@v1", "not a proof")
    require(extra.startswith("extra ") and index.startswith("index "), "no record or no index in the proof")
    size, root = open_checkpoint(note, vkey)
    record, index = decode(extra[6:]), decimal(index[6:])
    path = [decode(line) for line in path]
    require(all(len(it) == 32 for it in path) and len(path) <= 64, "a path that is none")
    require(root_by_path(leaf_hash(record), index, size, path) == root, "the record is not in the tree")
    return size


def tile_path(folder, index, width):
    groups = f"{index:03}"
    while len(groups) % 3:
        groups = "0" + groups
    groups = [groups[i : i + 3] for i in range(0, len(groups), 3)]
    partial = f".p/{width}" if width < 256 else ""
    return "/".join(["tile", folder, *("x" + it for it in groups[:-1]), groups[-1]]) + partial


def entries_of(bundle):
    while bundle:
        length = int.from_bytes(bundle[:2], "big")
        require(len(bundle) >= 2 + length, "a bundle ends within a record")
        yield bundle[2 : 2 + length]
        bundle = bundle[2 + length :]


def verify_directory(directory, vkey):
    size, root = open_checkpoint((directory / "checkpoint").read_bytes().decode(), vkey)
    level, hashes = 0, []
    with (directory / "records.jsonl").open("rb") as lines:
        for start in range(0, size, 256):
            width = min(256, size - start)
            bundle = (directory / tile_path("entries", start // 256, width)).read_bytes()
            entries = list(entries_of(bundle))
            require(len(entries) == width, "a bundle has more or fewer records than its name says")
            for sequence, entry in enumerate(entries, start):
                line = b'{"sequence":%d,"record":%s}\n' % (sequence, entry)
                require(lines.read(len(line)) == line, f"the line of record {sequence} is not that record")
                hashes.append(leaf_hash(entry))
        require(not lines.read(1), "there are more lines than records")
    require(root_of(hashes) == root, "the records do not have the root of the checkpoint")
    while hashes:
        for start in range(0, len(hashes), 256):
            tile = hashes[start : start + 256]
            found = (directory / tile_path(str(level), start // 256, len(tile))).read_bytes()
            require(found == b"".join(tile), f"a tile of level {level} has other hashes than the records")
        full = len(hashes) // 256 * 256
        hashes = [root_of(hashes[start : start + 256]) for start in range(0, full, 256)]
        level += 1
    return size


def main():
    path, vkey = Path(sys.argv[1]), sys.argv[2]
    try:
        size = verify_directory(path, vkey) if path.is_dir() else verify_proof(path.read_bytes().decode(), vkey)
    except (Refused, OSError, ValueError) as problem:
        sys.exit(f"{path}: {problem}")
    print(f"{path} is as the log signed it, at {size} records")


if __name__ == "__main__":
    main()
