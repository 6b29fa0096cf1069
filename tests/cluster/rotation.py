"""What an operator does to replace certificates, passwords, secrets and keys, in the order that deploy/README.md describes."""

import secrets
import ssl
import subprocess
import time

import release
from network import sh

# Services read changed certificates and authorities again within two seconds. Nothing shows which authorities a service trusts.
READ_AGAIN = 3.0
# `policy.permit_ttl`: time for which permits of the former key are used.
PERMITS = 30.0
# Ports at which services present their certificates to others.
PORTS = {"policy": 7001, "tool-runner": 7002, "audit": 7003, "memory": 7004}
NEXT_PERMIT = "permit-2.pub"


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
        self.turns, self.authority, self.fresh, self.signed = 0, None, None, 0.0

    def turn(self):
        # A change of the authority, or new certificates of the same one.
        self.authorities() if self.turns % 2 == 0 else self.certificates()
        self.store_passwords()
        self.source_secret()
        [self.accept_permits, self.sign_permits, self.end_permits][self.turns % 3]()
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

    def accept_permits(self):
        """The tool-runners also accept the next key of permits."""
        directory = release.SCRATCH / f"keys-{self.turns}"
        sh(release.WARDGATE, "certs", "dev", "--data-dir", directory, capture_output=True)
        self.fresh = {path.name: path.read_bytes() for path in (directory / "keys").iterdir()}
        self.cluster.change(release.KEYS, {NEXT_PERMIT: self.fresh["permit.pub"]})
        self.upgrade(nextPermitKeys=[NEXT_PERMIT])

    def sign_permits(self):
        """The policy services sign with it."""
        self.cluster.change(release.KEYS, {"permit.pem": self.fresh["permit.pem"]})
        self.cluster.roll(["demo-wardgate-policy"])
        self.signed = time.monotonic()

    def end_permits(self):
        """The tool-runners no longer accept the former key. The gateways seal sessions with another key."""
        time.sleep(max(0.0, self.signed + PERMITS - time.monotonic()))
        self.cluster.change(release.KEYS, {name: self.fresh[name] for name in ("permit.pub", "session.key")})
        self.upgrade()
        self.cluster.roll(["demo-wardgate-gateway"])

    def upgrade(self, **keys):
        self.cluster.apply(self.journeys.release(keys={"existingSecret": release.KEYS, **keys}))
