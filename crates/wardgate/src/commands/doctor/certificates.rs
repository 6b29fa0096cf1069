//! Checks of the certificates between services: DNS name, signature by the authority, validity period and private key.

use std::path::Path;
use std::time::Duration;

use rcgen::{KeyPair, PublicKeyData};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use wardgate_domain::{Ambient, Timestamp};
use wardgate_rpc::Peer;
use wardgate_rpc::link::TlsFiles;
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::parse_x509_certificate;

use super::finding::{Finding, FindingSubject};

const DAY: Duration = Duration::from_hours(24);
/// Days of remaining validity below which a certificate should be renewed.
const SOON: u64 = 14;

/// The certificate of one service.
#[derive(Debug, Clone)]
pub(super) struct Certificate {
    pub(super) peer: Peer,
    pub(super) files: TlsFiles,
}

pub(super) fn examine(certificates: &[Certificate]) -> Vec<Finding> {
    let now = Ambient::system().now();
    let one = |it: &Certificate| examine_one(it.peer, &it.files, now);
    certificates.iter().map(one).collect()
}

fn examine_one(peer: Peer, files: &TlsFiles, now: Timestamp) -> Finding {
    let name = peer.as_str();
    let about = FindingSubject::new("certificate", name);
    let left = match days_left(name, files, now) {
        Ok(left) => left,
        Err((what, remedy)) => return about.fail(what, remedy),
    };
    let message = format!("is signed by {}, {left} days remain", files.ca.display());
    if left < SOON {
        about.warn(message, "renew it")
    } else {
        about.ok(message)
    }
}

/// Checks the remaining validity of the certificate that the service at `place` presents. The process may present an older
/// certificate than the one in its file.
pub(super) fn examine_served(
    place: &str,
    certificate: &CertificateDer<'_>,
    now: Timestamp,
) -> Finding {
    let about = FindingSubject::new("certificate", format!("served by {place}"));
    match remaining_days(Path::new("it"), certificate, now) {
        Ok(days) if days < SOON => about.warn(
            format!("{days} days remain"),
            "renew it; if its file is newer, the log of the service states why the file was not loaded",
        ),
        Ok(days) => about.ok(format!("{days} days remain")),
        Err((what, remedy)) => about.fail(what, remedy),
    }
}

/// A problem with a certificate, and what to do about it.
type CertificateProblem = (String, String);

/// Checks the certificate of the service `name`, and returns the number of days for which it and its authority remain
/// valid.
fn days_left(name: &str, files: &TlsFiles, now: Timestamp) -> Result<u64, CertificateProblem> {
    let chain = certificates(&files.cert)?;
    let authority = certificates(&files.ca)?;
    let Some(leaf) = chain.first() else {
        return Err(unusable(&files.cert, "contains no PEM certificate"));
    };
    let bad = |_| unusable(&files.cert, "is not an X.509 certificate");
    let parsed = EndEntityCert::try_from(leaf).map_err(bad)?;
    if !parsed.valid_dns_names().any(|it| it == name) {
        let names: Vec<&str> = parsed.valid_dns_names().collect();
        let what = format!("{} names {names:?}", files.cert.display());
        return Err((what, format!("issue one whose DNS name is `{name}`")));
    }
    key_fits(leaf, files)?;
    let own = remaining_days(&files.cert, leaf, now)?;
    // There are two authorities while one replaces the other.
    let signers = authority.iter().map(|root| {
        verify_signature(&parsed, &chain[1..], root, now)?;
        remaining_days(&files.ca, root, now)
    });
    let best = signers.reduce(|one, other| match (one, other) {
        (Ok(one), Ok(other)) => Ok(one.max(other)),
        (Ok(left), Err(_)) | (Err(_), Ok(left)) => Ok(left),
        (Err(one), Err(_)) => Err(one),
    });
    match best {
        Some(Ok(left)) => Ok(left.min(own)),
        Some(Err(wrong)) => Err(wrong),
        None => Err(unusable(&files.ca, "contains no PEM certificate")),
    }
}

fn verify_signature(
    leaf: &EndEntityCert<'_>,
    chain: &[CertificateDer<'_>],
    root: &CertificateDer<'_>,
    now: Timestamp,
) -> Result<(), CertificateProblem> {
    let seconds = u64::try_from(now.as_seconds()).unwrap_or_default();
    let verified = anchor_from_trusted_cert(root).and_then(|anchor| {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let usage = KeyUsage::client_auth();
        leaf.verify_for_usage(
            ALL_VERIFICATION_ALGS,
            &[anchor],
            chain,
            time,
            usage,
            None,
            None,
        )
        .map(drop)
    });
    verified.map_err(|error| {
        let remedy =
            "issue a new one for servers and clients, signed by the authority that all services trust";
        (format!("cannot be verified: {error}"), remedy.to_owned())
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateProblem> {
    let text =
        std::fs::read(path).map_err(|error| unusable(path, &format!("cannot be read: {error}")))?;
    CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|_| unusable(path, "is not a PEM file"))
}

/// Returns the number of whole days until the certificate expires.
fn remaining_days(
    path: &Path,
    certificate: &CertificateDer<'_>,
    now: Timestamp,
) -> Result<u64, CertificateProblem> {
    let (_, parsed) = parse_x509_certificate(certificate)
        .map_err(|_| unusable(path, "is not an X.509 certificate"))?;
    let validity = parsed.validity();
    let [from, until] = [validity.not_before, validity.not_after]
        .map(|time| Timestamp::from_seconds(time.timestamp()));
    let shown = path.display();
    if now < from {
        let remedy = "synchronize the clocks of the machines that issue and use it";
        return Err((
            format!("{shown} is not valid before {from}"),
            remedy.to_owned(),
        ));
    }
    if now >= until {
        let remedy = "renew it";
        return Err((format!("{shown} expired at {until}"), remedy.to_owned()));
    }
    Ok(until.since(now).as_secs() / DAY.as_secs())
}

fn key_fits(leaf: &CertificateDer<'_>, files: &TlsFiles) -> Result<(), CertificateProblem> {
    let text = std::fs::read_to_string(&files.key)
        .map_err(|error| unusable(&files.key, &format!("cannot be read: {error}")))?;
    let key = KeyPair::from_pem(&text)
        .map_err(|_| unusable(&files.key, "contains no usable PEM private key"))?;
    let (_, parsed) = parse_x509_certificate(leaf)
        .map_err(|_| unusable(&files.cert, "is not an X.509 certificate"))?;
    if parsed.public_key().raw == key.subject_public_key_info() {
        return Ok(());
    }
    let what = format!("{} is not its private key", files.key.display());
    let remedy = format!("specify the key that belongs to {}", files.cert.display());
    Err((what, remedy))
}

fn unusable(path: &Path, why: &str) -> CertificateProblem {
    let what = format!("{} {why}", path.display());
    (what, "specify a valid file".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::certs;
    use crate::commands::doctor::finding::CheckStatus;

    fn files(dir: &Path, name: &str) -> TlsFiles {
        TlsFiles {
            ca: dir.join("ca.pem"),
            cert: dir.join(format!("{name}.pem")),
            key: dir.join(format!("{name}.key")),
        }
    }

    fn verdict(peer: Peer, files: &TlsFiles, now: Timestamp) -> CheckStatus {
        examine_one(peer, files, now).verdict
    }

    #[test]
    fn a_certificate_has_the_name_the_authority_the_key_and_time_left() {
        let places = tempfile::tempdir().unwrap();
        let (dir, other) = (places.path().join("a"), places.path().join("b"));
        for dir in [&dir, &other] {
            certs::certificates(dir).unwrap();
        }
        let now = Ambient::system().now();
        let good = files(&dir, "audit");
        assert_eq!(verdict(Peer::Audit, &good, now), CheckStatus::Ok);
        assert_eq!(verdict(Peer::Policy, &good, now), CheckStatus::Fail);
        let of_another = TlsFiles {
            ca: other.join("ca.pem"),
            ..good.clone()
        };
        assert_eq!(verdict(Peer::Audit, &of_another, now), CheckStatus::Fail);
        let wrong_key = TlsFiles {
            key: dir.join("policy.key"),
            ..good.clone()
        };
        assert_eq!(verdict(Peer::Audit, &wrong_key, now), CheckStatus::Fail);
        assert_eq!(
            verdict(Peer::Audit, &files(&dir, "none"), now),
            CheckStatus::Fail
        );
    }

    #[test]
    fn a_certificate_that_ends_soon_is_told_before_it_does() {
        let dir = tempfile::tempdir().unwrap();
        certs::certificates(dir.path()).unwrap();
        let files = files(dir.path(), "audit");
        let text = std::fs::read(&files.cert).unwrap();
        let leaf = CertificateDer::from_pem_slice(&text).unwrap();
        let (_, parsed) = parse_x509_certificate(&leaf).unwrap();
        let end = Timestamp::from_seconds(parsed.validity().not_after.timestamp());
        let at = |before: u32| verdict(Peer::Audit, &files, end.minus(DAY * before));
        assert_eq!(at(30), CheckStatus::Ok);
        assert_eq!(at(3), CheckStatus::Warn);
        assert_eq!(at(0), CheckStatus::Fail);
    }
}
