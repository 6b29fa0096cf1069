//! The URLs of a source, and its `tls` and `proxy`.

use url::Url;
use wardgate_egress::{InvalidTls, NetworkSettings, TlsSettings};
use wardgate_yaml::{Node, Position};

use super::VariableExpander;
use super::expand::STAND_IN_URL;
use crate::fault::FieldReader;
use crate::files::AttachedFile;

/// Reads a URL to which requests of a source are sent.
pub(super) fn service_url(
    node: &Node,
    what: &str,
    expand: &mut VariableExpander<'_>,
) -> Option<Url> {
    let text = expand.connection_text(node, what, STAND_IN_URL)?;
    let problem = match Url::parse(&text) {
        Err(_) => "is not a URL",
        Ok(url) if !matches!(url.scheme(), "http" | "https") => "is not an http(s) URL",
        Ok(url) if !url.username().is_empty() || url.password().is_some() => "contains user info",
        Ok(url) if url.query().is_some() || url.fragment().is_some() => {
            "contains a query or a fragment"
        }
        Ok(url) => return Some(url),
    };
    expand.faults.add(
        node.at,
        format!("`{what}` {problem}"),
        "write a URL like https://api.example.com/v1; credentials belong in `auth`",
    );
    None
}

/// Reads `tls` and `proxy` of a source at `url`. `at` is the position of the URL.
pub(super) fn read_network(
    url: &Url,
    at: Position,
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> NetworkSettings {
    let network = NetworkSettings {
        tls: tls(url, fields, expand),
        proxy: proxy(fields, expand),
    };
    if network.shows_proxy_identity() {
        expand.faults.add(
            at,
            "the source has `tls` and a proxy with an https URL, which would receive the client certificate",
            "use a proxy with an http URL: the traffic through the proxy to the source is encrypted nevertheless",
        );
    }
    network
}

/// Reads `tls` of a source at `url`.
fn tls(url: &Url, fields: &mut FieldReader<'_>, expand: &mut VariableExpander<'_>) -> TlsSettings {
    let Some(node) = fields.take_optional("tls") else {
        return TlsSettings::default();
    };
    if expand.opens_nothing() {
        return TlsSettings::default();
    }
    let tls = tls_files(node, expand);
    if url.scheme() == "http" {
        expand.faults.add(
            node.at,
            "the URL is http, which does not support TLS",
            "write https, or omit `tls`",
        );
    }
    tls.unwrap_or_default()
}

/// Reads `proxy`, which is the URL of an HTTP proxy. Faults do not contain it, because it may have a password.
fn proxy(fields: &mut FieldReader<'_>, expand: &mut VariableExpander<'_>) -> Option<Url> {
    let node = fields.take_optional("proxy")?;
    let text = expand.connection_text(node, "proxy", "http://host.invalid")?;
    let url = NetworkSettings::read_proxy(&text);
    if url.is_none() {
        expand.faults.add(
            node.at,
            "`proxy` is not an http(s) URL",
            "write for example `proxy: http://proxy.example.com:3128`, or `proxy: ${HTTPS_PROXY}`",
        );
    }
    url
}

/// Reads `tls: { ca: FILE, cert: FILE, key: FILE }`.
fn tls_files(node: &Node, expand: &mut VariableExpander<'_>) -> Option<TlsSettings> {
    const FIX: &str = "specify PEM files: `ca`, the authorities that replace the system's; `cert` and `key`, the client certificate of \
                       this gateway";
    let mut fields = FieldReader::new(node, "tls", expand.faults)?;
    let named = ["ca", "cert", "key"].map(|key| (key, fields.take_optional(key)));
    fields.finish(expand.faults);
    if named.iter().all(|(_, node)| node.is_none()) {
        expand.faults.add(node.at, "`tls` is empty", FIX);
        return None;
    }
    let mut texts = [None, None, None];
    for ((what, node), text) in named.iter().zip(&mut texts) {
        if let Some(node) = node {
            let read = file(node, what, FIX, expand)?;
            *text = Some(String::from_utf8(read).unwrap_or_default());
        }
    }
    let [ca, cert, key] = texts;
    let tls = TlsSettings::from_pem(ca, cert, key);
    let tls = tls.map_err(|invalid: InvalidTls| {
        let mut nodes = named.iter().filter(|(field, _)| *field == invalid.field);
        let at = nodes.find_map(|(_, node)| *node).unwrap_or(node).at;
        expand.faults.add(at, invalid.to_string(), FIX);
    });
    tls.ok()
}

/// Reads the file that `node` names. The source is reopened when the file changes.
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
            .push(AttachedFile::from_metadata(path.clone(), &found));
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
