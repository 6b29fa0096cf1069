"""Verifies an exported audit log, a proof or a submission to a witness, without any code of Wardgate:
`verify_log.py DIR|BUNDLE|SUBMISSION VKEY [--policy FILE] [--receipt FILE] [--since CHECKPOINT]`.

An independent implementation of `wardgate audit verify` that follows only the specifications: RFC 6962 and RFC 8032,
c2sp.org/signed-note, tlog-checkpoint, tlog-cosignature, tlog-policy, tlog-tiles, tlog-proof and tlog-witness. Exit code 0:
everything matches what the log signed and what the quorum of the policy cosigned, and continues the checkpoint of `--since`.
"""

import argparse
import base64
import hashlib
import json
import re
import sys
from pathlib import Path


class Refused(Exception):
    """Something does not match what the log signed."""


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
    """The root computed from `path`, from its end: the definition of PATH, applied backwards."""
    require(index < size, "there is no such entry in the tree")
    if size == 1:
        require(not path, "the path is too long")
        return leaf
    require(path, "the path is too short")
    middle = 1 << (size - 1).bit_length() - 1
    if index < middle:
        return node_hash(root_by_path(leaf, index, middle, path[:-1]), path[-1])
    return node_hash(path[-1], root_by_path(leaf, index - middle, size - middle, path[:-1]))


def roots_by_consistency(old, size, path, old_root):
    """The roots of the first `old` entries and of all entries, computed from `path` from its end: the definition of SUBPROOF,
    applied backwards. `old_root` is None if the older entries are not a complete subtree."""
    require(0 < old <= size, "the older tree is empty, or larger than the newer one")
    if old == size:
        found = path if old_root is None else [old_root, *path]
        require(len(found) == 1, "the path does not end where the older tree does")
        return found[0], found[0]
    require(path, "the path is too short")
    middle = 1 << (size - 1).bit_length() - 1
    if old <= middle:
        before, after = roots_by_consistency(old, middle, path[:-1], old_root)
        return before, node_hash(after, path[-1])
    before, after = roots_by_consistency(old - middle, size - middle, path[:-1], None)
    return node_hash(path[-1], before), node_hash(path[-1], after)


def require_consistency(older, newer, path):
    """Refuses a path that does not prove that the newer tree begins with the older one. A tree is a size and a root."""
    if older[0] == 0:
        require(older[1] == root_of([]) and not path, "a path from the empty tree, or another root of it")
        return
    found = roots_by_consistency(older[0], newer[0], path, older[1])
    require(found == (older[1], newer[1]), "the newer tree does not begin with the older one")


# Texts
def decode(text):
    decoded = base64.b64decode(text, validate=True)
    require(base64.b64encode(decoded).decode() == text, "base64 that is not canonical")
    return decoded


def decimal(text):
    require(text.isascii() and text.isdigit() and str(int(text)) == text, "not a decimal number")
    return int(text)


LOG, WITNESS = 1, 4


def open_vkey(vkey, kind):
    """The name, id and public key of a verifier key for signatures of this kind."""
    name, key_id, key = vkey.split("+", 2)
    key = decode(key)
    require(len(key) == 33 and key[0] == kind, "a key of another kind")
    expected = hashlib.sha256(name.encode() + b"\n" + key).digest()[:4]
    require(expected.hex() == key_id, "the key's id is not that of the key")
    return name, expected, key[1:]


def open_note(note):
    """The text of a note, and the name, id and signature of each signature line."""
    require(all(c == "\n" or c >= " " for c in note), "a control character in a note")
    text, separator, lines = note.rpartition("\n\n")
    require(separator and lines.endswith("\n"), "not a signed note")
    signatures = []
    for line in lines[:-1].split("\n"):
        dash, signer, encoded = line.split(" ")
        require(dash == "\u2014" and signer, "a signature line is malformed")
        signature = decode(encoded)
        signatures.append((signer, signature[:4], signature[4:]))
    return text + "\n", signatures


def is_signed(note, vkey, kind):
    """Whether the key signed the note. Refuses an invalid signature under its name."""
    name, key_id, public = open_vkey(vkey, kind)
    text, signatures = open_note(note)
    found = [signature for signer, of, signature in signatures if (signer, of) == (name, key_id)]
    for signature in found:
        if kind == WITNESS:
            time = int.from_bytes(signature[:8], "big")
            verify_signature(public, f"cosignature/v1\ntime {time}\n{text}".encode(), signature[8:])
        else:
            verify_signature(public, text.encode(), signature)
    return bool(found)


def is_cosigned(note, vkey):
    """The same for a witness. A witness with a key of an unknown kind is ignored."""
    return decode(vkey.split("+", 2)[2])[0] in (LOG, WITNESS) and is_signed(note, vkey, WITNESS)


def require_quorum(note, policy):
    """Refuses a note that the quorum of a policy did not cosign."""
    witnessed, quorum = {"none": True}, None
    for line in policy.split("\n"):
        words = [word for word in line.replace("\t", " ").split(" ") if word]
        if not words or words[0].startswith("#") or words[0] == "log":
            continue
        if words[0] == "witness":
            witnessed[words[1]] = is_cosigned(note, words[2])
        elif words[0] == "group":
            members = [witnessed[name] for name in words[3:]]
            threshold = {"any": 1, "all": len(members)}.get(words[2]) or int(words[2])
            witnessed[words[1]] = sum(members) >= threshold
        else:
            require(words[0] == "quorum" and quorum is None, "not a policy")
            quorum = words[1]
    require(quorum is not None, "the policy has no quorum")
    require(witnessed[quorum], "the checkpoint is not cosigned by the quorum")


def open_checkpoint(note, vkey, policy=None):
    """The size and root of a checkpoint that the key signed and the quorum of the policy cosigned."""
    require(is_signed(note, vkey, LOG), "the checkpoint is not signed by this key")
    if policy is not None:
        require_quorum(note, policy)
    origin, size, root = open_note(note)[0][:-1].split("\n")[:3]
    require(origin == vkey.split("+", 1)[0], "the checkpoint is of another log")
    return decimal(size), decode(root)


class Receipt:
    """The receipt that a client kept: the id of the call and the hash of its record."""

    def __init__(self, answer):
        found = set(self.find(json.loads(answer)))
        require(len(found) == 1, "the answer does not contain exactly one receipt")
        self.call_id, self.leaf_hash = found.pop()

    def find(self, value):
        if isinstance(value, dict):
            if "dev.wardgate/receipt" in value:
                yield value["dev.wardgate/callId"], value["dev.wardgate/receipt"]["leafHash"]
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                yield from self.find(item)

    def is_of(self, record):
        return leaf_hash(record).hex() == self.leaf_hash and json.loads(record).get("call_id") == self.call_id


def decode_path(lines):
    path = [decode(line) for line in lines]
    require(all(len(it) == 32 for it in path) and len(path) <= 64, "the path is not a Merkle path")
    return path


def verify_submission(text, vkey, policy=None, older=None):
    """Verifies a submission to a witness that last saw the older checkpoint."""
    lines, _, note = text.partition("\n\n")
    first, *path = lines.split("\n")
    require(first.startswith("old "), "not a submission")
    newer = open_checkpoint(note, vkey, policy)
    require(older is not None and decimal(first[4:]) == older[0], "it continues a checkpoint of another size")
    require_consistency(older, newer, decode_path(path))
    return newer[0]


def verify_proof(text, vkey, policy=None, receipt=None):
    lines, _, note = text.partition("\n\n")
    first, extra, index, *path = lines.split("\n")
    require(first == "c2sp.org/tlog-proof@v1", "not a proof")
    require(extra.startswith("extra ") and index.startswith("index "), "no record or no index in the proof")
    size, root = open_checkpoint(note, vkey, policy)
    record, index = decode(extra[6:]), decimal(index[6:])
    path = decode_path(path)
    require(root_by_path(leaf_hash(record), index, size, path) == root, "the record is not in the tree")
    require(receipt is None or receipt.is_of(record), "the record is not that of the receipt")
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


def pruned_by(record):
    """The sequence number below which retention removes records, according to this record; 0 for any other record."""
    record = json.loads(record)
    found = re.fullmatch(r"below=([0-9]+)", str(record.get("target", "")))
    said = [record.get(name) for name in ("event", "action", "status")]
    return int(found[1]) if found and said == ["admin_change", "audit.prune", None] else 0


def records_of(bundle, start, width):
    """The records of a bundle, their lines, and their leaf hashes."""
    entries = list(entries_of(bundle))
    require(len(entries) == width, "a bundle has more or fewer records than its name says")
    lines = (b'{"sequence":%d,"record":%s}\n' % it for it in enumerate(entries, start))
    return entries, b"".join(lines), [leaf_hash(entry) for entry in entries]


def verify_directory(directory, vkey, policy=None, receipt=None, older=None):
    size, root = open_checkpoint((directory / "checkpoint").read_bytes().decode(), vkey, policy)
    level, hashes, minimum_index, pruned_below = 0, [], 0, 0
    has_record = receipt is None
    with (directory / "records.jsonl").open("rb") as lines:
        for start in range(0, size, 256):
            width = min(256, size - start)
            # Retention removes whole bundles, beginning with the first, and keeps their hashes.
            pruned = start == minimum_index and start + width < size
            if pruned and not (directory / tile_path("entries", start // 256, width)).exists():
                minimum_index = start + width
                tile = (directory / tile_path("0", start // 256, width)).read_bytes()
                require(len(tile) == 32 * width, "a tile of removed records is incomplete")
                hashes += [tile[at : at + 32] for at in range(0, len(tile), 32)]
                continue
            bundle = (directory / tile_path("entries", start // 256, width)).read_bytes()
            entries, expected, leaves = records_of(bundle, start, width)
            require(lines.read(len(expected)) == expected, f"a line of the records from {start} on differs from its record in the bundle")
            hashes += leaves
            has_record = has_record or any(map(receipt.is_of, entries))
            pruned_below = max([pruned_below, *map(pruned_by, entries)]) if minimum_index else 0
        require(not lines.read(1), "there are more lines than records")
    require(has_record, "the export does not contain the record of the receipt")
    require(root_of(hashes) == root, "the root hash of the records differs from that of the checkpoint")
    if older is not None:
        begins = older[0] <= size and root_of(hashes[: older[0]]) == older[1]
        require(begins, "the first records are not those that the older checkpoint covers")
    require(pruned_below >= minimum_index, f"no record states that retention removed the records below {minimum_index}")
    while hashes:
        for start in range(0, len(hashes), 256):
            tile = hashes[start : start + 256]
            found = (directory / tile_path(str(level), start // 256, len(tile))).read_bytes()
            require(found == b"".join(tile), f"the hashes of a tile of level {level} differ from those of the records")
        full = len(hashes) // 256 * 256
        hashes = [root_of(hashes[start : start + 256]) for start in range(0, full, 256)]
        level += 1
    return size


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("path", type=Path)
    arguments.add_argument("vkey")
    arguments.add_argument("--policy", type=Path)
    arguments.add_argument("--receipt", type=Path)
    arguments.add_argument("--since", type=Path)
    given = arguments.parse_args()
    path = given.path
    try:
        policy = given.policy and given.policy.read_bytes().decode()
        receipt = given.receipt and Receipt(given.receipt.read_bytes().decode())
        older = given.since and open_checkpoint(given.since.read_bytes().decode(), given.vkey)
        if path.is_dir():
            size = verify_directory(path, given.vkey, policy, receipt, older)
        elif (text := path.read_bytes().decode()).startswith("old "):
            require(receipt is None, "there is no record in a submission")
            size = verify_submission(text, given.vkey, policy, older)
        else:
            require(older is None, "a proof of one record does not say what came before")
            size = verify_proof(text, given.vkey, policy, receipt)
    except (Refused, OSError, ValueError, LookupError) as problem:
        sys.exit(f"{path}: {problem}")
    print(f"{path} is as the log signed it, at {size} records")


if __name__ == "__main__":
    main()
