"""Runs what the chart renders, without a cluster: every pod in a network namespace of its own.

    cluster = Cluster(root_file_system, scratch)
    cluster.apply(manifests)        # ConfigMaps, Secrets, Services, Deployments
    cluster.wait_ready()
    cluster.run_pod(manifest)       # a Pod that ends, like a hook's

A container is its command with its environment, its mounts at their paths and its user, in a read-only root (the image's,
made by deploy/docker/rootfs). Headless Services are host names with the addresses of the ready pods, others a proxy with an
address of its own. Probes are asked as Kubernetes does. Needs root, and `unshare --net --mount` around it.
"""

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

BRIDGE = "10.77.0.1"


def sh(*words, **options):
    return subprocess.run(words, check=True, **options)


class Namespace:
    """A network namespace on the cluster's bridge, with host names of its own."""

    def __init__(self, number, name):
        self.name = f"wg{number}"
        self.address = f"10.77.{number // 250}.{number % 250 + 2}"
        sh("ip", "netns", "add", self.name)
        sh("ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", self.name)
        sh("ip", "link", "set", f"v{number}", "master", "br0", "up")
        for words in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{self.address}/16", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
        ):
            sh("ip", "-n", self.name, *words)
        self.hosts = Path("/etc/netns") / self.name / "hosts"
        self.hosts.parent.mkdir(parents=True, exist_ok=True)
        self.hosts.write_text("127.0.0.1 localhost\n")

    def close(self):
        subprocess.run(["ip", "netns", "delete", self.name], check=False)


class Container:
    """A process with the root file system of the image and the volumes of its pod."""

    def __init__(self, cluster, pod, spec, directory):
        self.spec = spec
        self.log = open(directory / f"{spec['name']}.log", "ab")
        self.log_path = directory / f"{spec['name']}.log"
        root = directory / f"root-{spec['name']}"
        root.mkdir(parents=True, exist_ok=True)
        script = [f"mount --bind {cluster.root} {root}"]
        for mount in spec.get("volumeMounts", []):
            target = f"{root}{mount['mountPath']}"
            # Mount points are made in the image before its root is read-only.
            (cluster.root / mount["mountPath"].lstrip("/")).mkdir(parents=True, exist_ok=True)
            script.append(f"mount --bind {pod.volumes[mount['name']]} {target}")
            if mount.get("readOnly"):
                script.append(f"mount -o remount,bind,ro {target}")
        (cluster.root / "etc/hosts").touch()
        (cluster.root / "proc").mkdir(exist_ok=True)
        (cluster.root / "dev").mkdir(exist_ok=True)
        script += [
            f"mount -o remount,bind,ro {root}",
            f"mount --bind {pod.network.hosts} {root}/etc/hosts",
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
            f"exec chroot --userspec=65532:65532 {root} /usr/bin/wardgate \"$@\"",
        ]
        environment = {"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"}
        for variable in spec.get("env", []):
            environment[variable["name"]] = cluster.value(variable, pod, environment)
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", pod.network.name, "unshare", "--mount", "sh", "-ec", "\n".join(script), "sh"]
            + [str(word) for word in spec.get("args", [])],
            env={"PATH": os.environ["PATH"], **environment},
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def tail(self, lines=20):
        self.log.flush()
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


class Pod:
    def __init__(self, cluster, name, manifest):
        self.cluster, self.name = cluster, name
        self.labels = manifest["metadata"].get("labels", {})
        self.spec = manifest["spec"]
        self.network = cluster.namespace()
        self.directory = cluster.scratch / "pods" / name
        self.directory.mkdir(parents=True)
        self.volumes = {volume["name"]: self.volume(volume) for volume in self.spec.get("volumes", [])}
        self.ready = self.stopping = False
        self.again = 0.0
        self.containers = []

    def volume(self, volume):
        path = self.directory / "volumes" / volume["name"]
        path.mkdir(parents=True)
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        if "emptyDir" in volume:
            os.chown(path, 65532, 65532)
            return path
        for source in volume.get("projected", {}).get("sources", [volume]):
            if "configMap" in source:
                of = self.cluster.objects["ConfigMap", source["configMap"]["name"]]
                files = {key: text.encode() for key, text in of["data"].items()}
            else:
                named = source["secret"].get("secretName") or source["secret"]["name"]
                files = self.cluster.secret(named)
            items = (source.get("secret") or source["configMap"]).get("items")
            wanted = {item["path"]: files[item["key"]] for item in items} if items else files
            for name, content in wanted.items():
                target = path / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        for target in path.rglob("*"):
            os.chown(target, 0, 65532)
            target.chmod(0o750 if target.is_dir() else 0o440)
        os.chown(path, 0, 65532)
        path.chmod(0o750)
        return path

    def start(self):
        self.containers = [Container(self.cluster, self, spec, self.directory) for spec in self.spec["containers"]]

    def port(self, container, name):
        for port in container.get("ports", []):
            if name in (port["name"], port["containerPort"]):
                return port["containerPort"]
        raise KeyError(name)

    def probe(self, kind="readinessProbe"):
        """Whether every container says yes."""
        for container in self.spec["containers"]:
            asked = container.get(kind)
            if not asked:
                continue
            port = self.port(container, asked["httpGet"]["port"])
            url = f"http://{self.network.address}:{port}{asked['httpGet']['path']}"
            try:
                urllib.request.urlopen(url, timeout=asked.get("timeoutSeconds", 1)).close()
            except (OSError, urllib.error.URLError):
                return False
        return True

    def stop(self, grace=None):
        """As the kubelet: out of the Services, preStop, SIGTERM, and after the grace period SIGKILL."""
        self.stopping = True
        self.ready = False
        self.cluster.publish()
        began = time.monotonic()
        grace = grace or self.spec.get("terminationGracePeriodSeconds", 30)
        hook = self.spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {})
        time.sleep(hook.get("seconds", 0))
        for container in self.containers:
            container.process.send_signal(signal.SIGTERM)
        killed = False
        for container in self.containers:
            try:
                container.process.wait(max(0.1, grace - (time.monotonic() - began)))
            except subprocess.TimeoutExpired:
                killed = True
                os.killpg(container.process.pid, signal.SIGKILL)
                container.process.wait()
        self.network.close()
        return killed, time.monotonic() - began

    def kill(self):
        """As a lost node: at once."""
        for container in self.containers:
            os.killpg(container.process.pid, signal.SIGKILL)
            container.process.wait()
        self.ready = False
        self.cluster.publish()
        self.network.close()


class Cluster:
    def __init__(self, root, scratch):
        # A copy: mount points are made in it.
        self.root = Path(scratch) / "root"
        shutil.copytree(root, self.root, symlinks=True)
        self.scratch = Path(scratch)
        self.objects, self.pods, self.services = {}, {}, {}
        self.number = 0
        self.lock = threading.RLock()
        # Namespaces and their host names are this test's alone.
        for place in ("/etc/netns", "/run/netns"):
            Path(place).mkdir(exist_ok=True)
            sh("mount", "-t", "tmpfs", "tmpfs", place)
        sh("ip", "link", "add", "br0", "type", "bridge")
        sh("ip", "addr", "add", f"{BRIDGE}/16", "dev", "br0")
        sh("ip", "link", "set", "br0", "up")
        sh("ip", "link", "set", "lo", "up")
        threading.Thread(target=self.watch, daemon=True).start()

    def namespace(self):
        with self.lock:
            self.number += 1
            return Namespace(self.number, str(self.number))

    def apply(self, manifests):
        for manifest in filter(None, manifests):
            self.objects[manifest["kind"], manifest["metadata"]["name"]] = manifest
        for (kind, name), manifest in list(self.objects.items()):
            if kind == "Service" and name not in self.services:
                self.services[name] = Service(self, manifest)
        for (kind, name), manifest in list(self.objects.items()):
            if kind == "Deployment":
                self.scale(name, manifest["spec"].get("replicas", 2))

    def secret(self, name):
        secret = self.objects["Secret", name]
        files = {key: base64.b64decode(text) for key, text in secret.get("data", {}).items()}
        return {**files, **{key: text.encode() for key, text in secret.get("stringData", {}).items()}}

    def value(self, variable, pod, earlier):
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            return self.secret(reference["name"])[reference["key"]].decode()
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"] == "status.podIP", source
            return pod.network.address
        value = str(variable["value"])
        for name, known in earlier.items():
            value = value.replace(f"$({name})", known)
        return value

    def of(self, deployment):
        return [pod for pod in self.pods.values() if pod.name.startswith(deployment + "--") and not pod.stopping]

    def scale(self, deployment, replicas):
        for pod in self.of(deployment)[replicas:]:
            self.remove(pod)
        while len(self.of(deployment)) < replicas:
            self.start(deployment)

    def start(self, deployment):
        template = self.objects["Deployment", deployment]["spec"]["template"]
        with self.lock:
            pod = Pod(self, f"{deployment}--{self.number}", template)
            self.pods[pod.name] = pod
        self.publish()
        pod.start()
        return pod

    def remove(self, pod):
        outcome = pod.stop()
        with self.lock:
            self.pods.pop(pod.name, None)
        self.publish()
        return outcome

    def lose(self, pod):
        """Kills a pod, and starts another in its place as its ReplicaSet would."""
        deployment = pod.name.split("--")[0]
        pod.kill()
        with self.lock:
            self.pods.pop(pod.name, None)
        return self.start(deployment)

    def restart(self, deployment, limit=120):
        """A rolling restart: one more before one less."""
        longest = 0.0
        for pod in self.of(deployment):
            fresh = self.start(deployment)
            self.wait(lambda: fresh.ready, f"{fresh.name} to be ready", limit)
            killed, seconds = self.remove(pod)
            if killed:
                raise AssertionError(f"{pod.name} was still there after its grace period:\n{pod.containers[0].tail()}")
            longest = max(longest, seconds)
        return longest

    def watch(self):
        """The kubelet's readiness probes, and the restart of what ended by itself."""
        while True:
            for pod in list(self.pods.values()):
                if pod.stopping or not pod.containers:
                    continue
                ready = pod.probe()
                if ready != pod.ready:
                    pod.ready = ready
                    self.publish()
                if pod.containers[0].process.poll() is not None and time.monotonic() > pod.again:
                    # It ended by itself: once more, after a while.
                    pod.again = time.monotonic() + 2
                    pod.start()
            time.sleep(0.2)

    def publish(self):
        """Writes what every namespace knows of Services."""
        with self.lock:
            lines = ["127.0.0.1 localhost"]
            for name, service in self.services.items():
                lines += [f"{address} {name}" for address in service.addresses()]
            text = "\n".join(lines) + "\n"
            for pod in self.pods.values():
                # In place: the file is mounted.
                pod.network.hosts.write_text(text)
            self.hosts = text

    def wait(self, condition, what, limit=120):
        until = time.monotonic() + limit
        while not condition():
            if time.monotonic() > until:
                raise AssertionError(f"waited {limit} s for {what}\n{self.report()}")
            time.sleep(0.1)

    def wait_ready(self, limit=120):
        self.wait(lambda: all(pod.ready for pod in self.pods.values()), "every pod to be ready", limit)

    def report(self):
        return "\n".join(
            f"--- {pod.name} ready={pod.ready}\n{pod.containers[0].tail()}" for pod in self.pods.values() if pod.containers
        )

    def run_pod(self, manifest, limit=60):
        """Runs a pod's init containers one after the other, then its container; raises where one fails."""
        pod = Pod(self, manifest["metadata"]["name"], manifest)
        pod.network.hosts.write_text(self.hosts)
        for spec in manifest["spec"].get("initContainers", []) + manifest["spec"]["containers"]:
            container = Container(self, pod, spec, pod.directory)
            try:
                code = container.process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(container.process.pid, signal.SIGKILL)
                code = "none in time"
            if code != 0:
                raise AssertionError(f"{spec['name']} ended with {code}:\n{container.tail()}\n{self.report()}")
        pod.network.close()
        return container.tail(200)

    def close(self):
        for pod in self.pods.values():
            pod.stopping = True
        for pod in list(self.pods.values()):
            for container in pod.containers:
                try:
                    os.killpg(container.process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for service in self.services.values():
            service.close()


class Service:
    """Headless: the addresses of its ready pods. Otherwise an address of its own, and a proxy there."""

    def __init__(self, cluster, manifest):
        self.cluster, self.spec = cluster, manifest["spec"]
        self.proxy = None
        if self.spec.get("clusterIP") == "None":
            return
        self.network = cluster.namespace()
        self.state = cluster.scratch / f"service-{manifest['metadata']['name']}.json"
        self.state.write_text("[]")
        port = self.spec["ports"][0]["port"]
        self.proxy = subprocess.Popen(
            ["ip", "netns", "exec", self.network.name, sys.executable, __file__, "proxy", str(port), str(self.state)],
            start_new_session=True,
        )

    def pods(self):
        wanted = self.spec["selector"].items()
        return [pod for pod in self.cluster.pods.values() if wanted <= pod.labels.items()]

    def addresses(self):
        # A pod that is not ready yet has to find itself; nobody else is led there.
        ready = [pod for pod in self.pods() if pod.ready]
        if self.proxy is None:
            return [pod.network.address for pod in ready]
        target = self.spec["ports"][0]["targetPort"]
        targets = [[pod.network.address, pod.port(pod.spec["containers"][0], target)] for pod in ready]
        part = self.state.with_suffix(".part")
        part.write_text(json.dumps(targets))
        part.rename(self.state)
        return [self.network.address]

    def close(self):
        if self.proxy:
            os.killpg(self.proxy.pid, signal.SIGKILL)


async def proxy(port, state):
    """Leads each connection to the next ready pod."""
    turn = 0

    async def pump(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def accept(reader, writer):
        nonlocal turn
        targets = json.loads(Path(state).read_text())
        for _ in targets:
            turn += 1
            host, target = targets[turn % len(targets)]
            try:
                there, back = await asyncio.open_connection(host, target)
            except OSError:
                continue
            await asyncio.gather(pump(reader, back), pump(there, writer))
            return
        writer.close()

    server = await asyncio.start_server(accept, "0.0.0.0", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__" and sys.argv[1:2] == ["proxy"]:
    asyncio.run(proxy(int(sys.argv[2]), sys.argv[3]))
