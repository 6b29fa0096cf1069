"""The network of the cluster: a bridge, and network namespaces with addresses on it, of one IP family or of both."""

import os
import subprocess
import threading
from pathlib import Path

# The networks of the wanted families, with the length of their prefixes. The first is the primary family: the address of a pod
# in its status, and the family of the probes.
NETWORKS = {"ipv4": ["10.77.{}.{}/16"], "ipv6": ["fd00:77::{:x}:{:x}/64"]}
NETWORKS["dual"] = NETWORKS["ipv4"] + NETWORKS["ipv6"]
FAMILY = os.environ.get("FAMILY") or "ipv4"
# The addresses of the node, from which probes and load are sent.
NODE = [network.format(0, 1) for network in NETWORKS[FAMILY]]
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
    for address in NODE:
        sh("ip", *added(address, "br0"))
    sh("ip", "link", "set", "br0", "up")
    sh("ip", "link", "set", "lo", "up")


def added(address, device):
    """The words of `ip` that add an address."""
    # Without the detection of duplicates, an IPv6 address can be used immediately.
    return ["addr", "add", address, "dev", device, *(["nodad"] if ":" in address else [])]


def in_url(address):
    return f"[{address}]" if ":" in address else address


class Namespace:
    """A network namespace on the bridge, with its own hosts file."""

    def __init__(self):
        with _lock:
            number = next(_numbers)
        self.name = f"wg{number}"
        self.link = f"v{number}"
        with_length = [network.format(number // 250, number % 250 + 2) for network in NETWORKS[FAMILY]]
        self.addresses = [address.partition("/")[0] for address in with_length]
        self.address = self.addresses[0]
        sh("ip", "netns", "add", self.name)
        sh("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        sh("ip", "link", "set", self.link, "master", "br0", "up")
        self.ip("link", "set", "lo", "up")
        for address in with_length:
            self.ip(*added(address, "eth0"))
        self.ip("link", "set", "eth0", "up")
        # Mounts the directory, so that the file in it can be replaced atomically.
        self.names = Path("/etc/netns") / self.name
        self.names.mkdir(parents=True)
        self.know("")

    def know(self, lines):
        """Replaces the host names."""
        part = self.names / "hosts.part"
        part.write_text("127.0.0.1 localhost\n::1 localhost\n" + lines)
        part.rename(self.names / "hosts")

    def ip(self, *words):
        sh("ip", "-n", self.name, *words)

    def cut(self, other):
        """Silently drops packets to the other namespace."""
        for address in other.addresses:
            self.ip("neigh", "replace", address, "lladdr", NOBODY, "nud", "permanent", "dev", "eth0")

    def heal(self, other):
        for address in other.addresses:
            self.ip("neigh", "delete", address, "dev", "eth0")

    def unplug(self):
        """Disconnects the namespace, so that not even the end of a connection is sent."""
        sh("ip", "link", "set", self.link, "down")

    def close(self):
        subprocess.run(["ip", "netns", "delete", self.name], check=False)
