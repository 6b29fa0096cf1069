"""Journeys of a release: installation, restarts, failures, upgrade. Started by tests/cluster/run, which lists the requirements.

After each journey, the ledger of the callers is compared with the audit log and the effects:

    (1) acknowledged without record = 0     (3) run twice = 0
    (2) effects without intent = 0          (4) neither an answer, nor a well-formed error, nor a closed connection = 0

The audit log must have no gaps, correct leaf hashes and unchanged records, and every intent must have an outcome.
"""

import math
import os
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import network
import release
from client import REPEATABLE, Load
from cluster import Cluster
from database import Database
from ledger import Record, Tally, sums
from rotation import Rotation

ROUNDS = int(os.environ.get("ROUNDS", "10"))
# The number of rotations, one per minute. By default three, which follow each other immediately.
ROTATION_MINUTES = int(os.environ.get("ROTATION_MINUTES") or 0)
# Seconds within which calls must succeed again after a failure.
RECOVERY = 30
DRAIN = 30
# Pairs of services, or of a service and a store, that communicate.
LINKS = [
    ("gateway", "policy"), ("gateway", "tool-runner"), ("gateway", "audit"), ("gateway", "memory"),
    ("tool-runner", "audit"), ("tool-runner", "memory"), ("memory", "policy"), ("memory", "audit"),
    ("gateway", "stores"), ("tool-runner", "stores"), ("memory", "stores"), ("audit", "records"),
]  # fmt: skip


class Journeys:
    def __init__(self):
        network.begin()
        # Databases for the effects of the tool, for the stores, and for the audit log. The first never fails.
        self.effects = Database("effects")
        self.stores = Database("stores")
        self.records = Database("records", Path(os.environ["SLOW_DISK_SHIM"]))
        self.effects.query(release.EFFECTS)
        for database in (self.stores, self.records):
            database.query(release.MAKE_ROLES)
        self.cluster = Cluster(release.IMAGES, release.SCRATCH)
        self.token = release.token()
        self.record = Record(self.records, release.mac_key())
        self.loads, self.calls = [], []
        self.installed = False

    # Steps

    def release(self, **changed):
        chart = changed.pop("chart", release.CHART)
        return release.rendered({**release.values(), **changed}, chart)

    def need_release(self):
        if not self.installed:
            self.cluster.apply(release.given(self.effects, self.stores, self.records))
            self.cluster.apply(self.release())
            self.cluster.wait_ready()
            self.installed = True

    def load(self, **options):
        """Starts a load from outside the cluster, by default to the primary address of the gateway, and waits for the first
        responses. It ends with the journey."""
        options.setdefault("address", self.gateway().address)
        load = Load(token=self.token, **options)
        self.loads.append(load)
        self.cluster.wait(lambda: load.calls() > 20, "the first answers", 60)
        return load

    def gateway(self):
        """The network of the Service through which clients call."""
        return self.cluster.services["demo-wardgate-gateway"].network

    def end_loads(self):
        """Stops all loads. Returns all calls, and the failures of strict loads, which fail the journey."""
        calls, failed = [], Counter()
        for load in self.loads:
            ended = load.end()
            calls += ended
            if load.strict:
                failed += Tally.of(ended).failed
        self.loads = []
        self.calls += calls
        return calls, failed

    def deployments(self):
        return [f"demo-wardgate-{name}" for name in release.SERVICES]

    def pods(self, name):
        return self.cluster.of(f"demo-wardgate-{name}")

    def hosts(self, name):
        """The network namespaces of a service or a store."""
        stores = {"stores": self.stores, "records": self.records}
        return [stores[name].network] if name in stores else [pod.network for pod in self.pods(name)]

    def recovered(self):
        """Waits until all pods are ready and no call fails for some seconds."""
        self.cluster.wait_ready(RECOVERY * 2)
        until = time.monotonic() + RECOVERY
        while True:
            load = self.load(callers=4, insists=False)
            time.sleep(3)
            failed = Tally.of(load.end()).failed
            if not failed:
                return
            assert time.monotonic() < until, f"calls still fail {RECOVERY} s later: {dict(failed)}"

    def settle(self):
        """Reads the audit log until every intent has its outcome, and computes the sums."""
        until = time.monotonic() + release.UNKNOWN_AFTER + 30
        self.record.read()
        while self.record.open and time.monotonic() < until:
            time.sleep(1)
            self.record.read()
        effects = self.effects.query("SELECT marker FROM line").split()
        return sums(self.calls, self.record, effects)

    # Journeys

    def install(self):
        """Every pod is ready with a role that owns no tables, and the release's test makes a governed call that is recorded.
        Clients of each IP family call."""
        for name, role in release.ROLES.items():
            database, schema = (self.records if name == "audit" else self.stores), name.replace("-", "_")
            for change in (f"CREATE TABLE {schema}.other (id int)", f"DROP TABLE {schema}.schema_version"):
                assert database.refuses(role, change), f"{role} may {change}"
        for change in ("UPDATE audit.record SET subject = ''", "DELETE FROM audit.record", "TRUNCATE audit.record"):
            assert self.records.refuses(release.ROLES["audit"], change), f"the audit service may {change}"
        hook = next(item for item in self.release() if "test" in item["metadata"].get("annotations", {}).get("helm.sh/hook", ""))
        said = self.cluster.run_pod(hook)
        result = next(line for line in said.splitlines() if '"dev.wardgate/receipt"' in line)
        assert "NUGWI" in result, result
        for address in self.gateway().addresses:
            self.load(address=address, strict=True)
        time.sleep(2)

    def restarts(self):
        """All Deployments are restarted at once, repeatedly, under load. No call fails, and every pod drains in time."""
        self.load(insists=False, strict=True)
        for _ in range(ROUNDS):
            self.cluster.roll(self.deployments())
        drains = [seconds for _, _, seconds in self.cluster.stopped]
        killed = [deployment for deployment, killed, _ in self.cluster.stopped if killed]
        print(f"#     {ROUNDS * len(self.deployments())} rolling restarts, longest drain {max(drains):.1f} s", flush=True)
        assert not killed, f"had to be killed after their grace period: {killed}"
        assert max(drains) <= DRAIN, f"a drain took {max(drains):.1f} s"

    def kills(self):
        """The pods of each service are killed in turn, repeatedly, under load."""
        self.load()
        for _ in range(max(1, ROUNDS // 5)):
            for deployment in self.deployments():
                for pod in self.cluster.of(deployment):
                    self.cluster.replace(pod, type(pod).kill)
                    self.cluster.wait_ready()
        self.recovered()

    def lost_nodes(self):
        """A pod of each service is lost with its node. Its connections are not closed, but become silent."""
        self.load()
        for deployment in self.deployments():
            pod = self.cluster.of(deployment)[0]
            self.cluster.replace(pod, type(pod).lose)
            time.sleep(5)
            self.cluster.wait_ready()
        self.recovered()

    def frozen(self):
        """A pod of each service is suspended for ten seconds and then continues."""
        self.load()
        for deployment in self.deployments():
            pod = self.cluster.of(deployment)[0]
            pod.signal(signal.SIGSTOP)
            time.sleep(10)
            pod.signal(signal.SIGCONT)
            self.cluster.wait_ready()
        self.recovered()

    def databases(self):
        """PostgreSQL of the stores and of the audit log is restarted, stopped, killed, and down for ten seconds. No pod
        restarts."""
        before = {pod.name: (pod.restarts, pod.unwell) for pod in self.cluster.all()}
        self.load()
        for database in (self.stores, self.records):
            for end in (database.stop, lambda: database.stop("immediate"), database.kill):
                end()
                database.start()
                time.sleep(4)
            database.kill()
            time.sleep(10)
            database.start()
            time.sleep(2)
        self.recovered()
        after = {pod.name: (pod.restarts, pod.unwell) for pod in self.cluster.all()}
        assert after == before, f"pods ended, or looked dead, with their database (restarts, failed liveness): {after}"

    def partitions(self):
        """Between each communicating pair, all packets are lost for eight seconds, first in both directions, then in one."""
        load = self.load()
        for one, other in LINKS:
            began = time.monotonic()
            for both in (True, False):
                cut = [(a, b) for a in self.hosts(one) for b in self.hosts(other)]
                cut += [(b, a) for a, b in cut] if both else []
                for a, b in cut:
                    a.cut(b)
                time.sleep(8 if both else 4)
                for a, b in cut:
                    a.heal(b)
                time.sleep(2)
            gap = load.longest_gap(began)
            print(f"#     {one} and {other}: calls stopped for {gap:.1f} s at most", flush=True)
        self.recovered()

    def apart(self):
        """One gateway pod cannot reach one pod of each service, but can reach the others. Calls continue."""
        self.load()
        for name in release.SERVICES[1:]:
            a, b = self.hosts("gateway")[0], self.hosts(name)[0]
            for one, other in ((a, b), (b, a)):
                one.cut(other)
            time.sleep(8)
            for one, other in ((a, b), (b, a)):
                one.heal(other)
        self.recovered()

    def full_disk(self):
        """The disk of the audit log is full for ten seconds, twice. No unrecorded call is answered."""
        self.load()
        for _ in range(2):
            self.records.fill()
            time.sleep(10)
            self.records.empty()
            if not self.records.pid():
                self.records.start()
            time.sleep(3)
        self.recovered()

    def slow_disk(self):
        """The disk of the audit log flushes slowly, then too slowly, then normally."""
        self.load()
        for milliseconds in (150, 2000, 0):
            self.records.slow(milliseconds)
            time.sleep(10)
        self.recovered()

    def rotation(self):
        """Certificates, their authority, passwords of stores, the secret of a source, and keys are replaced under load: the keys of
        permits, of sessions, of the issuer of tokens, of conversations, and of the details of calls. No call fails for a client
        that repeats it once, and what was stored before is still readable."""
        # The pause limits the records of an hour to half of the disk of the audit log.
        self.load(strict=True, keyed_tries=2, retry_after=2.0, pace=0.5 if ROTATION_MINUTES else 0.02, mix=REPEATABLE)
        rotation, began = Rotation(self), time.monotonic()
        # Keys take three turns.
        for minute in range(3 * max(1, math.ceil(ROTATION_MINUTES / 3))):
            if ROTATION_MINUTES:
                time.sleep(max(0.0, began + 60 * minute - time.monotonic()))
            rotation.turn()
            self.record.read()
        time.sleep(3)
        print(f"#     {rotation.turns} rotations in {time.monotonic() - began:.0f} s", flush=True)

    def upgrade(self):
        """`helm upgrade` from the earlier chart, and from the earlier binary if one was given, under load. No call
        fails."""
        chart, commit = release.earlier_chart()
        assert chart, "the history of the chart does not reach back"
        self.cluster.apply(self.release(chart=chart, image={"tag": release.EARLIER}))
        self.cluster.wait_ready()
        self.load(insists=False, strict=True)
        annotated = {"replicaCount": 2, "podAnnotations": {"upgraded": "yes"}}
        self.cluster.apply(self.release(defaults=annotated))
        self.cluster.wait_ready()
        time.sleep(3)
        program = "the earlier program" if release.FROM else "the same program"
        print(f"#     from the chart of {commit} and {program}", flush=True)


JOURNEYS = ["install", "restarts", "kills", "lost_nodes", "frozen", "databases", "partitions", "apart", "full_disk", "slow_disk", "rotation", "upgrade"]
HEAD = "journey         s  calls  acked  told errors closed again failed  gap s slowest | (1) (2) (3) (4) other"


def row(name, seconds, tally, found):
    seen = tally.outcomes
    return (
        f"{name:12} {seconds:4.0f} {tally.calls:6} {tally.acked:6} {seen['told']:5} {seen['error']:6} {seen['closed']:6}"
        f" {tally.retried:5} {sum(tally.failed.values()):6} {tally.gap:6.1f} {tally.slowest:7.1f} |"
        + "".join(f" {len(what):3}" for what in found.lists())
    )


def travel(journeys, name, table):
    """Runs one journey and checks its sums. Returns whether it passed."""
    journey, began = getattr(journeys, name), time.monotonic()
    what = " ".join(journey.__doc__.split())
    fault = None
    try:
        journeys.need_release()
        journey()
    except Exception as error:  # Any error is reported as one line, and the sums are still checked.
        fault = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    seconds = time.monotonic() - began
    calls, failed = journeys.end_loads()
    if failed:
        fault = fault or f"calls failed: {dict(failed)}"
    found, tally = journeys.settle(), Tally.of(calls)
    table.append(row(name, seconds, tally, found))
    print(f"# {HEAD}\n# {table[-1]}", flush=True)
    for why, times in tally.failed.most_common(8):
        print(f"#     {times} failed: {why}", flush=True)
    for what_is_wrong in found.lists():
        for example in what_is_wrong[:3]:
            print(f"#     {example}", flush=True)
    if any(found.lists()):
        fault = fault or "the sums are not nought"
        # Reports these faults only once.
        journeys.calls, journeys.record.faults = [], []
    print(f"FAIL  {name}: {fault}" if fault else f"ok    {name}: {what}", flush=True)
    if fault:
        print(f"pods warned of:\n{journeys.cluster.complaints()}", file=sys.stderr)
    return not fault


def main():
    wanted = sys.argv[1:] or JOURNEYS
    unknown = [name for name in wanted if name not in JOURNEYS]
    if unknown:
        sys.exit(f"there is no journey {unknown[0]}; there are {', '.join(JOURNEYS)}")
    journeys, table = Journeys(), []
    try:
        well = [travel(journeys, name, table) for name in wanted]
    finally:
        journeys.cluster.close()
        for database in (journeys.effects, journeys.stores, journeys.records):
            database.close()
    print("\n".join(["", HEAD, *table, "", f"{sum(well)} passed, {len(well) - sum(well)} failed"]), flush=True)
    sys.exit(not all(well))


if __name__ == "__main__":
    main()
