"""Runs the rendered chart without a cluster: every pod in its own network namespace.

    cluster = Cluster({tag: root_file_system}, scratch)
    cluster.apply(manifests)        # ConfigMaps, Secrets, Services, Deployments; hooks first
    cluster.wait_ready()
    cluster.roll([deployment, …])   # a simultaneous rolling restart of all
    cluster.run_pod(manifest)       # a Pod that runs to completion, such as a hook
    cluster.run_in(pod, command, …) # a command in a running Pod

A container is a process with its command, environment, mounts and user, and a read-only root file system (that of the image
with its tag, created by deploy/docker/rootfs). A headless Service is a host name with the addresses of the ready pods; another
Service is a proxy with its own address. Both learn of changes with a delay, as in a cluster. Probes run as in Kubernetes.
Needs root, and must run under `unshare --net --mount`.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from network import Namespace
from pod import Container, Pod

# Delay until a change of a pod's readiness is known everywhere.
LAG = 1.0


class Cluster:
    def __init__(self, images, scratch):
        self.scratch = Path(scratch)
        self.images = {tag: self.unpack(tag, root) for tag, root in images.items()}
        self.objects, self.pods, self.services = {}, {}, {}
        self.started = 0
        self.stopped = []
        self.lock = threading.RLock()
        self.names = ""

    def unpack(self, tag, image):
        # Separate directories, because mount points are created in them.
        root = self.scratch / f"root-{tag}"
        shutil.copytree(image, root, symlinks=True, copy_function=os.link)
        for place in ("proc", "dev", "etc/cluster"):
            (root / place).mkdir(exist_ok=True)
        (root / "etc/hosts").unlink(missing_ok=True)
        (root / "etc/hosts").symlink_to("cluster/hosts")
        # A name can have several addresses, as in DNS.
        (root / "etc/host.conf").write_text("multi on\n")
        return root

    # Objects of the API server

    def apply(self, manifests):
        """Installs or upgrades a release: hooks first, then its objects. Changed Deployments are rolled."""
        manifests = [manifest for manifest in manifests if manifest]
        hooks = [item for item in manifests if hook_of(item)]
        before = self.templates()
        # Hooks run before the objects of the release, so they include the objects that they need.
        for manifest in sorted(hooks, key=weight):
            if "pre-" in hook_of(manifest):
                self.objects[manifest["kind"], manifest["metadata"]["name"]] = manifest
                if manifest["kind"] == "Job":
                    template = manifest["spec"]["template"]
                    self.run_pod({"metadata": {"name": manifest["metadata"]["name"], **template["metadata"]}, "spec": template["spec"]})
        for manifest in manifests:
            if not hook_of(manifest):
                self.objects[manifest["kind"], manifest["metadata"]["name"]] = manifest
        for (kind, name), manifest in list(self.objects.items()):
            if kind == "Service" and name not in self.services:
                self.services[name] = Service(self, manifest)
        for pod in self.all():
            pod.refresh()
        after = self.templates()
        self.roll([name for name in after if name in before and before[name] != after[name]])
        for name in after:
            self.scale(name, self.objects["Deployment", name]["spec"].get("replicas", 2))

    def templates(self):
        return {name: item["spec"]["template"] for (kind, name), item in self.objects.items() if kind == "Deployment"}

    def secret(self, name):
        secret = self.objects["Secret", name]
        files = {key: base64.b64decode(text) for key, text in secret.get("data", {}).items()}
        return {**files, **{key: text.encode() for key, text in secret.get("stringData", {}).items()}}

    def change(self, name, files):
        """Changes files of a Secret, also in the pods that mount it."""
        data = {key: base64.b64encode(content).decode() for key, content in {**self.secret(name), **files}.items()}
        self.objects["Secret", name] = {"kind": "Secret", "metadata": {"name": name}, "data": data}
        for pod in self.all():
            pod.refresh()

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

    # Pods

    def all(self):
        with self.lock:
            return list(self.pods.values())

    def of(self, deployment):
        return [pod for pod in self.all() if pod.deployment == deployment and not pod.stopping]

    def scale(self, deployment, replicas):
        for pod in self.of(deployment)[replicas:]:
            self.remove(pod)
        while len(self.of(deployment)) < replicas:
            self.start(deployment)

    def start(self, deployment):
        template = self.objects["Deployment", deployment]["spec"]["template"]
        with self.lock:
            self.started += 1
            pod = Pod(self, f"{deployment}--{self.started}", template)
            pod.network.know(self.names)
            self.pods[pod.name] = pod
        pod.start()
        return pod

    def remove(self, pod):
        """Stops a pod gracefully, and records the result."""
        killed, seconds = pod.stop()
        self.stopped.append((pod.deployment, killed, seconds))

    def replace(self, pod, how):
        """Ends a pod with `how`, and starts a replacement as its ReplicaSet would."""
        how(pod)
        return self.start(pod.deployment)

    def forget(self, pod):
        with self.lock:
            self.pods.pop(pod.name, None)
        self.changed()

    def roll(self, deployments, limit=180):
        """Restarts all Deployments at once, each as a rolling update that adds a pod before it removes one."""

        def one(deployment):
            ending = []
            for pod in self.of(deployment):
                fresh = self.start(deployment)
                self.wait(lambda: fresh.ready, f"{fresh.name} to be ready", limit)
                ending.append(threading.Thread(target=self.remove, args=[pod]))
                ending[-1].start()
            for thread in ending:
                thread.join()

        with ThreadPoolExecutor(max_workers=16) as pool:
            list(pool.map(one, deployments))

    # Service discovery

    def changed(self):
        """Publishes changes of pods and their readiness, with a delay."""
        timer = threading.Timer(LAG, self.publish)
        timer.daemon = True
        timer.start()

    def publish(self):
        with self.lock:
            lines = []
            for name, service in self.services.items():
                lines += [f"{address} {name}\n" for network in service.networks() for address in network.addresses]
            self.names = "".join(lines)
            for pod in self.pods.values():
                if not pod.gone:
                    pod.network.know(self.names)

    def wait(self, condition, what, limit=120, pause=0.1):
        """Waits until the condition holds, which is evaluated every `pause` seconds."""
        until = time.monotonic() + limit
        while not condition():
            if time.monotonic() > until:
                raise AssertionError(f"waited {limit} s for {what}\n{self.report()}")
            time.sleep(pause)

    def wait_ready(self, limit=120):
        self.wait(lambda: all(pod.ready for pod in self.all()), "every pod to be ready", limit)
        # Also waits until the change is known everywhere.
        time.sleep(LAG)
        self.publish()

    def report(self):
        return "\n".join(f"--- {pod.name} ready={pod.ready}\n{pod.containers[0].tail(5)}" for pod in self.all() if pod.containers)

    def complaints(self, most=30):
        """All warnings of all pods, with their counts."""
        said = Counter()
        for log in (self.scratch / "pods").glob("*/*.log"):
            for line in log.read_text(errors="replace").splitlines():
                try:
                    entry = json.loads(line)
                    fields = entry["fields"]
                except (ValueError, KeyError, TypeError):
                    continue
                if entry["level"] in ("WARN", "ERROR"):
                    why = fields.get("error") or fields.get("cause") or ""
                    said[f"{log.parent.name.split('--')[0]}: {fields.get('message')} ({why})"] += 1
        return "\n".join(f"{times:6} {what}" for what, times in said.most_common(most))

    def run_pod(self, manifest, limit=120):
        """Runs a pod's init containers in order, then its container. Raises an error if one fails."""
        with self.lock:
            self.started += 1
            pod = Pod(self, f"{manifest['metadata']['name']}--{self.started}", manifest)
        pod.network.know(self.names)
        for spec in manifest["spec"].get("initContainers", []) + manifest["spec"]["containers"]:
            said = self.complete(Container(self, pod, spec), limit)
        pod.network.close()
        return said

    def run_in(self, pod, *words, limit=120):
        """Runs a command of the program in a running pod, like `kubectl exec`. Raises an error if it fails, and returns its
        last lines."""
        spec = {**pod.spec["containers"][0], "name": "-".join(words[:2]), "args": words}
        return self.complete(Container(self, pod, spec), limit)

    def complete(self, container, limit):
        """Waits until a container has run to completion. Raises an error if it fails, and returns its last lines."""
        try:
            code = container.process.wait(limit)
        except subprocess.TimeoutExpired:
            container.kill()
            code = "none in time"
        if code != 0:
            raise AssertionError(f"{container.spec['name']} ended with {code}:\n{container.output(20)}\n{self.report()}")
        return container.output(200)

    def close(self):
        for pod in self.all():
            pod.stopping = True
            pod.signal(signal.SIGKILL)
        for service in self.services.values():
            service.close()


def hook_of(manifest):
    return manifest["metadata"].get("annotations", {}).get("helm.sh/hook", "")


def weight(manifest):
    return int(manifest["metadata"]["annotations"].get("helm.sh/hook-weight", 0))


class Service:
    """A Service. If headless, the addresses of its ready pods; otherwise a proxy with its own address."""

    def __init__(self, cluster, manifest):
        self.cluster, self.spec = cluster, manifest["spec"]
        self.proxy = None
        if self.spec.get("clusterIP") == "None":
            return
        self.network = Namespace()
        self.state = cluster.scratch / f"service-{manifest['metadata']['name']}.json"
        self.state.write_text("[]")
        port = self.spec["ports"][0]["port"]
        program = Path(__file__).parent / "proxy.py"
        self.proxy = subprocess.Popen(
            ["ip", "netns", "exec", self.network.name, sys.executable, program, str(port), str(self.state)],
            start_new_session=True,
        )

    def networks(self):
        """Publishes the ready pods. Returns the networks whose addresses the name of the Service has."""
        wanted = self.spec["selector"].items()
        ready = [pod for pod in self.cluster.pods.values() if pod.ready and wanted <= pod.labels.items()]
        if self.proxy is None:
            return [pod.network for pod in ready]
        target = self.spec["ports"][0]["targetPort"]
        targets = [[pod.network.address, pod.port(pod.spec["containers"][0], target)] for pod in ready]
        part = self.state.with_suffix(".part")
        part.write_text(json.dumps(targets))
        part.rename(self.state)
        return [self.network]

    def close(self):
        if self.proxy:
            self.proxy.kill()
