"""What an operator does to replace certificates, passwords, secrets and keys, in the order that deploy/README.md describes."""

import json
import re
import secrets
import ssl
import subprocess
import time

import client
import release
from network import sh

# Services read changed certificates and authorities again within two seconds. Nothing shows which authorities a service trusts.
READ_AGAIN = 3.0
# `policy.permit_ttl`: time for which permits of the former key are used.
PERMITS = 30.0
# Ports at which services present their certificates to others.
PORTS = {"policy": 7001, "tool-runner": 7002, "audit": 7003, "memory": 7004}
NEXT_PERMIT = "permit-2.pub"
# The names in the Secret of the master keys, and those of the former ones while a store is moved.
FORMER = {"memory.key": "memory-former.key", "audit-details.key": "audit-details-former.key"}
# Seconds within which a gateway reads the keys of the issuers again, by default 50, and some more.
KEY_SETS = 70
CONFIG = "/etc/wardgate/config/wardgate.yaml"
CONVERSATION, SAID = "rotation", "Does NUGWI take Lisinopril?"


class Authority:
    """A certificate authority that issues the certificates of the services."""

    def __init__(self, directory):
        self.directory, self.issued = directory, 0
        directory.mkdir()
        self.settings = directory / "openssl.cnf"
        # Without the system's settings, which would make every certificate one of an authority.
        self.settings.write_text("[req]\ndistinguished_name = name\n[name]\n")
        self.certificate, self.key = directory / "ca.pem", directory / "ca.key"
        self.make(self.certificate, self.key, directory.name, "basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign")

    def make(self, certificate, key, name, *extensions, by=()):
        words = ["openssl", "req", "-x509", "-new", "-config", self.settings, "-nodes", "-days", "2", "-subj", f"/CN={name}", *by]
        words += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", key, "-out", certificate]
        sh(*words, *(word for extension in extensions for word in ("-addext", extension)), stderr=subprocess.DEVNULL)

    def issue(self, name):
        """A new certificate and its new key, as files of a Secret."""
        self.issued += 1
        certificate, key = (self.directory / f"{name}-{self.issued}.{kind}" for kind in ("pem", "key"))
        extensions = [f"subjectAltName=DNS:{name}", "extendedKeyUsage=serverAuth,clientAuth", "basicConstraints=critical,CA:FALSE"]
        self.make(certificate, key, name, *extensions, by=["-CA", self.certificate, "-CAkey", self.key])
        return {"tls.crt": certificate.read_bytes(), "tls.key": key.read_bytes()}


def presented(address):
    """The lines of the certificate that a server presents."""
    return ssl.get_server_certificate(address, timeout=5).split()


class Rotation:
    """Replaces everything once per `turn`, except keys, which take three turns."""

    def __init__(self, journeys):
        self.journeys, self.cluster = journeys, journeys.cluster
        self.turns, self.authority = 0, None
        # The directory with the next keys, its files by name, and when permits were first signed with the next key.
        self.directory, self.fresh, self.signed = None, None, 0.0
        # A token that the former key of the issuer signed.
        self.former_token = ""
        self.memory("get_or_create")
        self.memory("add_message", role="user", content=SAID)

    def turn(self):
        # A change of the authority, or new certificates of the same one.
        self.authorities() if self.turns % 2 == 0 else self.certificates()
        self.store_passwords()
        self.source_secret()
        [self.accept_keys, self.use_keys, self.end_keys][self.turns % 3]()
        self.turns += 1

    def authorities(self):
        former = self.cluster.secret("gateway-tls")["ca.crt"]
        self.authority = Authority(release.SCRATCH / f"authority-{self.turns}")
        new = self.authority.certificate.read_bytes()
        self.trust(former + new)
        self.certificates()
        self.trust(new)

    def trust(self, authorities):
        for name in release.SERVICES:
            self.cluster.change(f"{name}-tls", {"ca.crt": authorities})
        time.sleep(READ_AGAIN)

    def certificates(self):
        for name in release.SERVICES:
            self.cluster.change(f"{name}-tls", self.authority.issue(name))
        time.sleep(READ_AGAIN)
        for name, port in PORTS.items():
            wanted = self.cluster.secret(f"{name}-tls")["tls.crt"].decode()
            for pod in self.journeys.pods(name):
                address = (pod.network.address, port)
                self.cluster.wait(lambda: presented(address) == wanted.split(), f"the new certificate of {pod.name}", 10)

    def store_passwords(self):
        for name, role in release.ROLES.items():
            database = self.journeys.records if name == "audit" else self.journeys.stores
            password = secrets.token_hex(16)
            self.cluster.change("wardgate-passwords", {name: password.encode()})
            changed = database.query(f"ALTER ROLE {role} PASSWORD '{password}'; SELECT clock_timestamp()").splitlines()[-1]
            # Open sessions remain, so idle ones are ended: the services must open others with the new password.
            database.query(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}' AND state = 'idle'")
            self.used(database, role, f"backend_start > '{changed}'")

    def source_secret(self):
        """Replaces the role and the password of the ledger's database in turn with another role, so that both are valid."""
        former, role = (release.LEDGER_ROLES[turn % 2] for turn in (self.turns, self.turns + 1))
        password = secrets.token_hex(16)
        database = self.journeys.effects
        database.query(f"ALTER ROLE {role} PASSWORD '{password}'")
        self.cluster.change("ledger", {"url": database.url(role, password).encode()})
        self.used(database, role)
        self.cluster.wait(lambda: self.sessions(database, former) == 0, f"no session of {former}", 30)

    def used(self, database, role, condition="true"):
        self.cluster.wait(lambda: self.sessions(database, role, condition) > 0, f"sessions of {role} where {condition}", 30)

    def sessions(self, database, role, condition="true"):
        return int(database.query(f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}' AND {condition}"))

    def accept_keys(self):
        """The next keys are accepted in addition: of permits by the tool-runners, of tokens by the gateways and policy services.
        The memory and audit services get the next master keys, which are not in force yet."""
        self.directory, self.former_token = release.SCRATCH / f"keys-{self.turns}", self.journeys.token
        sh(release.WARDGATE, "certs", "dev", "--data-dir", self.directory, capture_output=True)
        self.fresh = {path.name: path.read_bytes() for path in (self.directory / "keys").iterdir()}
        current = self.cluster.secret(release.KEYS)
        key_sets = [json.loads(files["jwks.json"])["keys"] for files in (current, self.fresh)]
        files = {NEXT_PERMIT: self.fresh["permit.pub"], "jwks.json": json.dumps({"keys": sum(key_sets, [])}).encode()}
        for name, kept_as in FORMER.items():
            files |= {name: self.fresh[name], kept_as: current[name]}
        self.cluster.change(release.KEYS, files)
        former = {"formerMemoryKeys": [FORMER["memory.key"]], "formerDetailsKeys": [FORMER["audit-details.key"]]}
        self.upgrade(nextPermitKeys=[NEXT_PERMIT], **former)

    def use_keys(self):
        """The next keys are used: the policy services sign permits, and the issuer tokens. The stores are moved to them."""
        self.cluster.change(release.KEYS, {"permit.pem": self.fresh["permit.pem"]})
        self.cluster.roll(["demo-wardgate-policy"])
        self.signed = time.monotonic()
        self.journeys.token = release.token(self.directory)
        self.cluster.change("doctor", {"token": self.journeys.token.encode()})
        for load in self.journeys.loads:
            load.token = self.journeys.token
        for service, command in (("memory", "conversations"), ("audit", "audit")):
            said = self.cluster.run_in(self.journeys.pods(service)[0], command, "rekey", "--config", CONFIG)
            assert re.search(r"moved to the current (master )?key: [1-9]", said), said

    def end_keys(self):
        """The former keys are no longer accepted. The gateways seal sessions with another key. What was stored before the
        rotation is still readable, and the search finds it."""
        statuses = self.statuses_of_former_token()
        assert statuses and set(statuses) == {200}, statuses
        self.cluster.change(release.KEYS, {"jwks.json": self.fresh["jwks.json"]})
        # What a gateway still accepts is recorded, so there are pauses.
        refused = "the gateways to refuse tokens of the former key"
        self.cluster.wait(self.former_token_is_refused, refused, KEY_SETS, pause=1)
        time.sleep(max(0.0, self.signed + PERMITS - time.monotonic()))
        self.cluster.change(release.KEYS, {name: self.fresh[name] for name in ("permit.pub", "session.key")})
        self.upgrade()
        self.cluster.roll(["demo-wardgate-gateway"])
        found = self.memory("get_context")["messages"]
        assert SAID in [message["content"] for message in found], found
        hits = self.memory("search", query="lisinopril")["hits"]
        assert SAID in [hit["message"]["content"] for hit in hits], hits
        query = ["query", "--offline", "--config", CONFIG, "--subject", "NUGWI", "--limit", "1", "--output", "jsonl"]
        said = self.cluster.run_in(self.journeys.pods("audit")[0], "audit", *query)
        first = next(json.loads(line) for line in said.splitlines() if line.startswith("{"))
        assert isinstance(first["details"], dict), first

    def statuses_of_former_token(self):
        """The HTTP status with which each gateway answers to the token."""
        statuses = []
        for pod in self.journeys.pods("gateway"):
            port = pod.port(pod.spec["containers"][0], "http")
            of_conversation = {"conversation_id": CONVERSATION}
            status, _ = client.ask(pod.network.address, port, self.former_token, "memory/get_context", **of_conversation)
            statuses.append(status)
        return statuses

    def former_token_is_refused(self):
        """Whether every gateway refuses the token."""
        return set(self.statuses_of_former_token()) == {401}

    def memory(self, method, **params):
        """The result of a method of the memory for the conversation of the rotation."""
        address, token = self.journeys.gateway().address, self.journeys.token
        status, body = client.ask(address, 80, token, f"memory/{method}", conversation_id=CONVERSATION, **params)
        assert status == 200, body
        return json.loads(body)["result"]

    def upgrade(self, **keys):
        self.cluster.apply(self.journeys.release(keys={"existingSecret": release.KEYS, **keys}))
