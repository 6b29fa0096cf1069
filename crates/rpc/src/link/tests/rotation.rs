//! Tests of links and servers whose certificates are renewed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SerialNumber,
};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use wardgate_tls::{EndOfTls, LiveConfig};

use super::world::RunningReplica;
use super::{call_once, ready};
use crate::link::{self, HTTP2, TlsFiles};
use crate::peer::Peer;

/// Validity of the certificates in these tests. Certificate times have a resolution of seconds, and renewals happen every second.
/// A certificate that is used late because the machine is busy is still valid.
const GOOD_FOR: Duration = Duration::from_secs(10);

/// A certificate authority, with the files of the certificates that it issued last.
struct Renewal {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    issued: AtomicU64,
}

impl Renewal {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let dir = tempfile::tempdir().unwrap();
        let root = params.self_signed(&key).unwrap();
        fs::write(dir.path().join("ca.pem"), root.pem()).unwrap();
        let renewal = Self {
            dir,
            issuer: Issuer::new(params, key),
            issued: AtomicU64::new(0),
        };
        renewal.renew();
        renewal
    }

    fn files(&self, name: &str) -> TlsFiles {
        let at = |name: &str| self.dir.path().join(name);
        TlsFiles {
            ca: at("ca.pem"),
            cert: at(&format!("{name}.pem")),
            key: at(&format!("{name}.key")),
        }
    }

    /// Issues new certificates for both ends, with the next serial number.
    #[expect(
        clippy::disallowed_methods,
        reason = "TLS checks certificates by the clock of the machine"
    )]
    fn renew(&self) {
        let serial = self.issued.fetch_add(1, Ordering::Relaxed) + 1;
        for name in ["audit", "operator"] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.serial_number = Some(SerialNumber::from(serial));
            params.not_before = std::time::SystemTime::now().into();
            params.not_before -= Duration::from_secs(1);
            params.not_after = params.not_before + GOOD_FOR;
            params.extended_key_usages = vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ];
            let certificate = params.signed_by(&key, &self.issuer).unwrap();
            let files = self.files(name);
            replace(&files.cert, &certificate.pem());
            replace(&files.key, &key.serialize_pem());
        }
    }

    /// Returns the serial number of the certificate that a new connection gets.
    async fn fetch_serial(&self, replica: &RunningReplica) -> u64 {
        let config = LiveConfig::open(
            (&self.files("operator")).into(),
            EndOfTls::GrpcClient,
            |identity| identity.client_config(&[HTTP2]),
        );
        let connector = TlsConnector::from(config.unwrap().current());
        let stream = TcpStream::connect(replica.address).await.unwrap();
        let name = ServerName::try_from("audit").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let chain = stream.get_ref().1.peer_certificates().unwrap();
        let (_, leaf) = x509_parser::parse_x509_certificate(&chain[0]).unwrap();
        leaf.raw_serial()
            .iter()
            .fold(0, |serial, byte| serial << 8 | u64::from(*byte))
    }
}

/// Replaces a file atomically, so that no reader sees a part of it.
fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    fs::write(&next, text).unwrap();
    fs::rename(next, path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_are_renewed_every_second_cost_no_call() {
    let renewal = Arc::new(Renewal::new());
    // Connections are replaced all the time, and each uses the certificates that are current then.
    let replica = RunningReplica::aging_with_certificates(
        renewal.files("audit"),
        Duration::from_millis(300),
        // This is longer than a call or a handshake takes on a heavily loaded machine.
        Duration::from_secs(10),
    );
    let mut linked = link::connect(
        &format!("https://{}", replica.address),
        Peer::Audit,
        replica.name,
        Some(&renewal.files("operator")),
    )
    .unwrap();
    ready(&mut linked).await;
    let done = Arc::new(AtomicBool::new(false));
    let callers = (0..4).map(|_| {
        let (link, done) = (linked.link.transport.clone(), Arc::clone(&done));
        tokio::spawn(async move {
            let mut answered = 0_u64;
            while !done.load(Ordering::Relaxed) {
                // The call is never retried, so that a refused connection is not hidden.
                call_once(&link).await.unwrap();
                answered += 1;
            }
            answered
        })
    });
    let callers: Vec<_> = callers.collect();
    // The test lasts twice as long as a certificate is valid.
    let end = Instant::now() + 2 * GOOD_FOR;
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    while Instant::now() < end {
        ticks.tick().await;
        renewal.renew();
    }
    let last = renewal.issued.load(Ordering::Relaxed);
    super::until("the last certificate is served", async || {
        renewal.fetch_serial(&replica).await == last
    })
    .await;
    done.store(true, Ordering::Relaxed);
    for caller in callers {
        assert!(caller.await.unwrap() > 0);
    }
}
