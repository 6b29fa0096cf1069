"""Checks an OCI layout as a registry would: layout.py DIRECTORY image|chart CHART.tgz"""
import gzip
import hashlib
import io
import json
import pathlib
import sys
import tarfile

directory, kind, chart = sys.argv[1:]
blobs = pathlib.Path(directory) / "blobs/sha256"
seen = set()


def read(descriptor):
    algorithm, digest = descriptor["digest"].split(":")
    data = (blobs / digest).read_bytes()
    assert algorithm == "sha256" and hashlib.sha256(data).hexdigest() == digest, digest
    assert len(data) == descriptor["size"], digest
    seen.add(digest)
    return data


version = json.loads((pathlib.Path(directory) / "oci-layout").read_text())
assert version == {"imageLayoutVersion": "1.0.0"}
[named] = json.loads((pathlib.Path(directory) / "index.json").read_text())["manifests"]
assert named["annotations"]["org.opencontainers.image.ref.name"]
document = json.loads(read(named))
manifests = [document] if "layers" in document else [json.loads(read(one)) for one in document["manifests"]]
for manifest in manifests:
    config = json.loads(read(manifest["config"]))
    [layer] = [read(one) for one in manifest["layers"]]
    if kind == "chart":
        assert layer == pathlib.Path(chart).read_bytes() and config["name"] == "wardgate", config
        continue
    tar = gzip.decompress(layer)
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(tar).hexdigest()}"]
    assert config["config"]["User"] == "65532:65532"
    files = {entry.name: entry for entry in tarfile.open(fileobj=io.BytesIO(tar))}
    assert files["usr/bin/wardgate"].mode == 0o755 and files["usr/bin/wardgate"].uid == 0
    assert files["tmp"].mode == 0o1777 and files["data"].uid == 65532
    assert files["usr"].mode == files["etc/passwd"].mode | 0o111 == 0o755, "readable to the user, whatever the umask"
assert seen == {path.name for path in blobs.iterdir()}, "blobs that nothing names"
print(f"ok    the {kind} is a whole OCI layout")
