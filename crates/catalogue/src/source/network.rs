//! `tls` and `proxy` of a source: the way to it through the operator's network.

use url::Url;
use wardgate_egress::{ClientIdentity, NetworkSettings, Secret, TlsSettings};
use wardgate_yaml::{Node, Position};

use super::VariableExpander;
use crate::fault::FieldReader;
use crate::files::AttachedFile;

/// What a file of PEM has to hold, and how that begins.
const CERTIFICATE: (&str, &str) = ("certificate", "-----BEGIN CERTIFICATE-----");
const PRIVATE_KEY: (&str, &str) = ("private key", "PRIVATE KEY-----");

/// Reads both keys, of a source at `url`, which stands at `at`.
pub(super) fn read(
    url: &Url,
    at: Position,
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> NetworkSettings {
    let network = NetworkSettings {
        tls: tls(url, fields, expand),
        proxy: proxy(fields, expand),
    };
    let is_https = |proxy: &Url| proxy.scheme() == "https";
    if network.tls != TlsSettings::default() && network.proxy.as_ref().is_some_and(is_https) {
        expand.faults.add(
            at,
            "the source has `tls` and a proxy at an https URL, which would be shown the certificate",
            "name a proxy at an http URL: what goes through it to the source is encrypted all the same",
        );
    }
    network
}

/// Reads `tls`, of a source at `url`.
pub(super) fn tls(
    url: &Url,
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> TlsSettings {
    let Some(node) = fields.optional("tls") else {
        return TlsSettings::default();
    };
    let tls = tls_files(node, expand);
    if url.scheme() == "http" {
        expand.faults.add(
            node.at,
            "the URL is http, which has no TLS",
            "write https, or leave out `tls`",
        );
    }
    tls.unwrap_or_default()
}

/// Reads `proxy`: the URL of an HTTP proxy. It may hold a password, so it is part of no fault.
fn proxy(fields: &mut FieldReader<'_>, expand: &mut VariableExpander<'_>) -> Option<Url> {
    let node = fields.optional("proxy")?;
    let text = expand.text(node, "proxy")?;
    let url = Url::parse(&text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if url.is_none() {
        expand.faults.add(
            node.at,
            "`proxy` is no http(s) URL",
            "write for example `proxy: http://proxy.example.com:3128`, or `proxy: ${HTTPS_PROXY}`",
        );
    }
    url
}

/// `tls: { ca: FILE, cert: FILE, key: FILE }`.
fn tls_files(node: &Node, expand: &mut VariableExpander<'_>) -> Option<TlsSettings> {
    const FIX: &str = "name files of PEM: `ca`, authorities instead of the system's; `cert` and `key`, what the source knows this gateway by";
    let mut fields = FieldReader::of(node, "tls", expand.faults)?;
    let [ca, cert, key] = ["ca", "cert", "key"].map(|key| fields.optional(key));
    fields.finish(expand.faults);
    if ca.is_none() && cert.is_none() && key.is_none() {
        expand.faults.add(node.at, "`tls` is empty", FIX);
        return None;
    }
    let mut pem = |node: Option<&Node>, what: &str, (noun, marker): (&str, &str)| {
        let Some(node) = node else {
            return Some(None);
        };
        let text = String::from_utf8(file(node, what, FIX, expand)?).unwrap_or_default();
        if !text.contains(marker) {
            let problem = format!("`{what}` holds no {noun} in PEM");
            expand.faults.add(node.at, problem, FIX);
            return None;
        }
        Some(Some(text))
    };
    let ca = pem(ca, "ca", CERTIFICATE)?;
    let certificate = pem(cert, "cert", CERTIFICATE)?;
    let key = pem(key, "key", PRIVATE_KEY)?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(ClientIdentity {
            certificate,
            key: Secret::from(key),
        }),
        (None, None) => None,
        _ => {
            let problem = "`cert` and `key` belong together";
            expand.faults.add(node.at, problem, FIX);
            return None;
        }
    };
    Some(TlsSettings { ca, identity })
}

/// The bytes of the file that `node` names. A change of the file opens the source anew.
pub(super) fn file(
    node: &Node,
    what: &str,
    fix: &str,
    expand: &mut VariableExpander<'_>,
) -> Option<Vec<u8>> {
    let path = expand.base.join(expand.text(node, what)?);
    if let Ok(found) = std::fs::metadata(&path) {
        expand
            .secret_files
            .push(AttachedFile::of(path.clone(), &found));
    }
    std::fs::read(path)
        .map_err(|error| {
            expand.faults.add(
                node.at,
                format!("the file of `{what}` cannot be read: {error}"),
                fix,
            );
        })
        .ok()
}
