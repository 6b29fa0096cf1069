"""The cluster's network: a bridge, and a network namespace with an address for everything on it."""

import subprocess
import threading
from pathlib import Path

# The node's own address: probes come from here, and the load.
NODE = "10.77.0.1"
# The bridge keeps it. By itself it takes one of its members', and with that pod all others lose the node for eight seconds.
BRIDGE = "02:00:00:00:00:01"
# No network card has it.
NOBODY = "02:00:00:00:00:00"

_numbers = iter(range(1, 60000))
_lock = threading.Lock()


def sh(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, **options)


def begin():
    """The bridge. Namespaces and their host names are this test's alone."""
    for place in ("/etc/netns", "/run/netns"):
        Path(place).mkdir(exist_ok=True)
        sh("mount", "-t", "tmpfs", "tmpfs", place)
    sh("ip", "link", "add", "br0", "address", BRIDGE, "type", "bridge")
    sh("ip", "addr", "add", f"{NODE}/16", "dev", "br0")
    sh("ip", "link", "set", "br0", "up")
    sh("ip", "link", "set", "lo", "up")


class Namespace:
    """A network namespace on the bridge, with host names of its own."""

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
        # A directory, so that the file in it can be replaced whole: nobody reads half of it.
        self.names = Path("/etc/netns") / self.name
        self.names.mkdir(parents=True)
        self.know("")

    def know(self, lines):
        """Host names, as of now."""
        part = self.names / "hosts.part"
        part.write_text("127.0.0.1 localhost\n" + lines)
        part.rename(self.names / "hosts")

    def ip(self, *words):
        sh("ip", "-n", self.name, *words)

    def cut(self, other):
        """What is sent to the other is lost on its way, and nobody is told."""
        self.ip("neigh", "replace", other.address, "lladdr", NOBODY, "nud", "permanent", "dev", "eth0")

    def heal(self, other):
        self.ip("neigh", "delete", other.address, "dev", "eth0")

    def unplug(self):
        """The cable is pulled: nothing leaves any more, not even the end of a connection."""
        sh("ip", "link", "set", self.link, "down")

    def close(self):
        subprocess.run(["ip", "netns", "delete", self.name], check=False)
