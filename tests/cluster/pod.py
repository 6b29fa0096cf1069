"""A pod: its containers as processes, its volumes as directories, and the work of the kubelet."""

import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from network import Namespace, in_url

# Probe interval until the first success. Afterwards, the interval of the manifest applies.
EAGER = 0.2


class Container:
    """A process with the root file system of the image, the volumes of the pod and the configured user."""

    def __init__(self, cluster, pod, spec):
        self.spec = spec
        self.log_path = pod.directory / f"{spec['name']}.log"
        # An earlier container of the same name has written to the same file.
        self.log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        root = pod.directory / f"root-{spec['name']}"
        root.mkdir(parents=True, exist_ok=True)
        image = cluster.images[spec["image"].rpartition(":")[2]]
        script = [f"mount --bind {image} {root}"]
        for mount in spec.get("volumeMounts", []):
            target = f"{root}{mount['mountPath']}"
            # Mount points are created before the root file system becomes read-only.
            (image / mount["mountPath"].lstrip("/")).mkdir(parents=True, exist_ok=True)
            script.append(f"mount --bind {pod.volumes[mount['name']]} {target}")
            if mount.get("readOnly"):
                script.append(f"mount -o remount,bind,ro {target}")
        script += [
            f"mount -o remount,bind,ro {root}",
            f"mount --bind {pod.network.names} {root}/etc/cluster",
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
            f"exec chroot --userspec=65532:65532 {root} /usr/bin/wardgate \"$@\"",
        ]
        environment = {"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"}
        for variable in spec.get("env", []):
            environment[variable["name"]] = cluster.value(variable, pod, environment)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", pod.network.name, "unshare", "--mount", "sh", "-ec", "\n".join(script), "sh"]
                + [str(word) for word in spec.get("args", [])],
                env={"PATH": os.environ["PATH"], **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def output(self, lines):
        """The last lines that this container has written, without those of earlier containers of the same name."""
        written = self.log_path.read_bytes()[self.log_start:]
        return "\n".join(written.decode(errors="replace").splitlines()[-lines:])

    def tail(self, lines=20):
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


class Pod:
    def __init__(self, cluster, name, manifest):
        self.cluster, self.name = cluster, name
        self.deployment = name.split("--")[0]
        self.labels = manifest["metadata"].get("labels", {})
        self.spec = manifest["spec"]
        self.network = Namespace()
        self.directory = cluster.scratch / "pods" / name
        self.directory.mkdir(parents=True)
        self.volumes = {}
        for volume in self.spec.get("volumes", []):
            self.volumes[volume["name"]] = self.volume(volume)
        self.ready = self.stopping = self.gone = False
        self.restarts, self.unwell = 0, 0
        self.containers = []

    def volume(self, volume):
        path = self.directory / "volumes" / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
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
                if not target.exists() or target.read_bytes() != content:
                    part = path / ".part"
                    part.write_bytes(content)
                    part.rename(target)
        for target in path.rglob("*"):
            os.chown(target, 0, 65532)
            target.chmod(0o750 if target.is_dir() else 0o440)
        os.chown(path, 0, 65532)
        path.chmod(0o750)
        return path

    def refresh(self):
        """Updates mounted ConfigMaps and Secrets."""
        for volume in self.spec.get("volumes", []):
            if not volume.keys().isdisjoint(("configMap", "secret", "projected")):
                self.volume(volume)

    def start(self):
        self.containers = [Container(self.cluster, self, spec) for spec in self.spec["containers"]]
        threading.Thread(target=self.watch, daemon=True).start()

    def port(self, container, name):
        for port in container.get("ports", []):
            if name in (port["name"], port["containerPort"]):
                return port["containerPort"]
        raise KeyError(name)

    def probe(self, kind):
        """Whether every container is ready."""
        for container in self.spec["containers"]:
            if asked := container.get(kind):
                port = self.port(container, asked["httpGet"]["port"])
                url = f"http://{in_url(self.network.address)}:{port}{asked['httpGet']['path']}"
                try:
                    urllib.request.urlopen(url, timeout=asked.get("timeoutSeconds", 1)).close()
                except (OSError, urllib.error.URLError):
                    return False
        return True

    def watch(self):
        """Runs the probes of the kubelet, and restarts containers that exited."""
        probe = self.spec["containers"][0].get("readinessProbe", {})
        missed, next_live = 0, time.monotonic() + 5
        while not self.stopping:
            if self.containers[0].process.poll() is not None:
                self.restarts += 1
                time.sleep(1)
                if not self.stopping:
                    self.containers = [Container(self.cluster, self, spec) for spec in self.spec["containers"]]
            missed = 0 if self.probe("readinessProbe") else missed + 1
            ready = missed == 0 if not self.ready else missed < probe.get("failureThreshold", 3)
            if ready != self.ready and not self.stopping:
                self.ready = ready
                self.cluster.changed()
            if self.ready and time.monotonic() > next_live:
                # Liveness failures cause no restart here. Journeys check their number.
                next_live = time.monotonic() + 5
                self.unwell += not self.probe("livenessProbe") and not self.stopping
            time.sleep(probe.get("periodSeconds", 10) if self.ready else EAGER)

    def stop(self):
        """Stops the pod like the kubelet: preStop, SIGTERM, and SIGKILL after the grace period. Returns whether SIGKILL was
        needed, and the seconds since SIGTERM."""
        self.stopping, self.ready = True, False
        self.cluster.changed()
        began = time.monotonic()
        grace = self.spec.get("terminationGracePeriodSeconds", 30)
        hook = self.spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {})
        time.sleep(hook.get("seconds", 0))
        told = time.monotonic()
        killed = False
        for container in self.containers:
            container.process.send_signal(signal.SIGTERM)
        for container in self.containers:
            try:
                container.process.wait(max(0.1, grace - (time.monotonic() - began)))
            except subprocess.TimeoutExpired:
                killed = True
                container.kill()
        self.end()
        return killed, time.monotonic() - told

    def kill(self):
        """Kills the pod immediately, like the OOM killer."""
        self.stopping, self.ready = True, False
        for container in self.containers:
            container.kill()
        self.end()

    def lose(self):
        """Ends the pod like a lost node, without any notice to its peers."""
        self.network.unplug()
        self.kill()

    def signal(self, number):
        for container in self.containers:
            os.killpg(container.process.pid, number)

    def end(self):
        self.gone = True
        self.cluster.forget(self)
        self.network.close()
