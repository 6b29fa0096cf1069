"""The network of the cluster: a bridge, and network namespaces with addresses on it."""

import subprocess
import threading
from pathlib import Path

# The address of the node, from which probes and load are sent.
NODE = "10.77.0.1"
# A fixed MAC address. Otherwise the bridge uses that of a member, and if this pod ends, all others lose the node for 8 seconds.
BRIDGE = "02:00:00:00:00:01"
# A MAC address that no interface has.
NOBODY = "02:00:00:00:00:00"

_numbers = iter(range(1, 60000))
_lock = threading.Lock()


def sh(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, **options)


def begin():
    """The bridge. Namespaces and their host names are private to this test."""
    for place in ("/etc/netns", "/run/netns"):
        Path(place).mkdir(exist_ok=True)
        sh("mount", "-t", "tmpfs", "tmpfs", place)
    sh("ip", "link", "add", "br0", "address", BRIDGE, "type", "bridge")
    sh("ip", "addr", "add", f"{NODE}/16", "dev", "br0")
    sh("ip", "link", "set", "br0", "up")
    sh("ip", "link", "set", "lo", "up")


class Namespace:
    """A network namespace on the bridge, with its own hosts file."""

    def __init__(self):
        with _lock:
            number = next(_numbers)
        self.name = f"wg{number}"
        self.link = f"v{number}"
        self.address = f"10.77.{number // 250}.{number % 250 + 2}"
        sh("ip", "netns", "add", self.name)
        sh("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        sh("ip", "link", "set", self.link, "master", "br0", "up")
        self.ip("link", "set", "lo", "up")
        self.ip("addr", "add", f"{self.address}/16", "dev", "eth0")
        self.ip("link", "set", "eth0", "up")
        # Mounts the directory, so that the file in it can be replaced atomically.
        self.names = Path("/etc/netns") / self.name
        self.names.mkdir(parents=True)
        self.know("")

    def know(self, lines):
        """Replaces the host names."""
        part = self.names / "hosts.part"
        part.write_text("127.0.0.1 localhost\n" + lines)
        part.rename(self.names / "hosts")

    def ip(self, *words):
        sh("ip", "-n", self.name, *words)

    def cut(self, other):
        """Silently drops packets to the other namespace."""
        self.ip("neigh", "replace", other.address, "lladdr", NOBODY, "nud", "permanent", "dev", "eth0")

    def heal(self, other):
        self.ip("neigh", "delete", other.address, "dev", "eth0")

    def unplug(self):
        """Disconnects the namespace, so that not even the end of a connection is sent."""
        sh("ip", "link", "set", self.link, "down")

    def close(self):
        subprocess.run(["ip", "netns", "delete", self.name], check=False)
