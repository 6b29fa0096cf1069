//! The settings of bundles.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::Url;
use wardgate_domain::{is_loopback_host, whole_seconds};
use wardgate_egress::{
    AllowedHost, EgressSettings, NetworkSettings, PrivateAddresses, TlsSettings,
};

use crate::{BundleConfigError, BundleVerifier, envelope};

/// Maximum time of a request, from the first byte sent to the last byte received.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

/// The settings of a source of bundles. The interval is whole seconds in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleConfig {
    /// The source: a file, a directory of `*.bundle` files, an `https` URL, or `oci://HOST/NAME:TAG`.
    pub source: String,
    /// The Ed25519 public keys, in PEM format, one of which must have signed a bundle.
    pub public_key_files: Vec<PathBuf>,
    /// The file that holds the bundle in force, and thereby the lowest version that is still accepted.
    #[serde(default)]
    pub state_file: Option<PathBuf>,
    /// The lowest version that is accepted; default 1.
    #[serde(default = "default_minimum_version")]
    pub minimum_version: u64,
    /// The interval between two looks at the source, 1 to 86400 s; default 30 s.
    #[serde(default = "default_poll_interval", with = "whole_seconds")]
    pub poll_interval: Duration,
    /// A file with the bearer token of requests. It is read for each request.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// The trusted authorities of the server's certificate, in PEM format. `None` means the system's authorities.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// The client certificate, in PEM format.
    #[serde(default)]
    pub cert_file: Option<PathBuf>,
    /// The key of the client certificate, in PEM format.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// The URL of an HTTP proxy.
    #[serde(default)]
    pub proxy: Option<String>,
    /// Whether the server may have an address that is not on the public internet.
    #[serde(default)]
    pub private_addresses: bool,
    /// The other hosts to which the server may refer: those of redirects, and those that issue tokens of a registry.
    #[serde(default)]
    pub further_hosts: Vec<String>,
}

/// The place that a source names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SourceLocation {
    Path(PathBuf),
    Http(Url),
    Registry {
        /// The URL of the registry.
        base: Url,
        repository: String,
        /// A tag or a digest.
        reference: String,
    },
}

impl BundleConfig {
    /// Creates a configuration with defaults.
    pub fn new(source: impl Into<String>, public_key_files: Vec<PathBuf>) -> Self {
        Self {
            source: source.into(),
            public_key_files,
            state_file: None,
            minimum_version: default_minimum_version(),
            poll_interval: default_poll_interval(),
            token_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            proxy: None,
            private_addresses: false,
            further_hosts: Vec::new(),
        }
    }

    /// Checks the values, without reading a file.
    pub fn validate(&self) -> Result<(), BundleConfigError> {
        if self.public_key_files.is_empty() {
            let problem = "is empty: add the public key that verifies bundles";
            return Err(BundleConfigError::value("public_key_files", problem));
        }
        if !(1..=86_400).contains(&self.poll_interval.as_secs()) {
            let problem = "must be 1 to 86400 seconds";
            return Err(BundleConfigError::value("poll_interval", problem));
        }
        if self.minimum_version == 0 {
            return Err(BundleConfigError::value(
                "minimum_version",
                "must be at least 1",
            ));
        }
        if self.state_file.is_none() && self.minimum_version == 1 {
            let problem = "is missing: specify a file that persists across restarts, or set `minimum_version`, so that an older bundle is \
                           not accepted after a restart";
            return Err(BundleConfigError::value("state_file", problem));
        }
        if self.cert_file.is_some() != self.key_file.is_some() {
            let problem = "and bundle.key_file must be set together";
            return Err(BundleConfigError::value("cert_file", problem));
        }
        self.hosts()?;
        self.location().map(drop)
    }

    /// Reads the public keys.
    pub fn verifier(&self) -> Result<BundleVerifier, BundleConfigError> {
        let mut verifier = BundleVerifier::default();
        for path in &self.public_key_files {
            if !verifier.add_pem(&read_file("public_key_files", path)?) {
                let problem = format!("{} is not an Ed25519 public key in PEM", path.display());
                return Err(BundleConfigError::value("public_key_files", problem));
            }
        }
        Ok(verifier)
    }

    pub(crate) fn location(&self) -> Result<SourceLocation, BundleConfigError> {
        let invalid = |problem: &str| BundleConfigError::value("source", problem);
        let Some((scheme, rest)) = self.source.split_once("://") else {
            return Ok(SourceLocation::Path(PathBuf::from(&self.source)));
        };
        match scheme {
            "https" | "http" => {
                let url = Url::parse(&self.source).map_err(|_| invalid("is not a URL"))?;
                check_secure(&url)?;
                Ok(SourceLocation::Http(url))
            }
            "oci" => registry(rest),
            _ => Err(invalid(
                "is neither a path, an https URL nor oci://HOST/NAME:TAG",
            )),
        }
    }

    fn hosts(&self) -> Result<Vec<AllowedHost>, BundleConfigError> {
        let hosts = self.further_hosts.iter().map(|host| {
            host.parse::<AllowedHost>()
                .map_err(|error| BundleConfigError::value("further_hosts", error.to_string()))
        });
        hosts.collect()
    }

    /// Returns the settings of the client of `url`.
    pub(crate) fn egress(&self, url: &Url) -> Result<EgressSettings, BundleConfigError> {
        let pem = |key: &'static str, file: &Option<PathBuf>| {
            let text = file.as_ref().map(|file| read_file(key, file));
            text.transpose()
        };
        let tls = TlsSettings::from_pem(
            pem("ca_file", &self.ca_file)?,
            pem("cert_file", &self.cert_file)?,
            pem("key_file", &self.key_file)?,
        );
        let tls = tls.map_err(|invalid| {
            let key = match invalid.field {
                "ca" => "ca_file",
                "cert" => "cert_file",
                _ => "key_file",
            };
            BundleConfigError::value(key, invalid.problem)
        })?;
        let network = NetworkSettings::new(tls, self.proxy.as_deref())
            .map_err(|invalid| BundleConfigError::value("proxy", invalid.to_string()))?;
        Ok(EgressSettings {
            network,
            ..EgressSettings::for_url(
                url,
                self.hosts()?,
                PrivateAddresses::from(self.private_addresses),
                REQUEST_LIMIT,
                envelope::MAX_BYTES,
            )
        })
    }
}

/// Checks that a request to `url` is encrypted, or stays on this machine.
fn check_secure(url: &Url) -> Result<(), BundleConfigError> {
    if url.scheme() == "https" || url.host_str().is_some_and(is_loopback_host) {
        Ok(())
    } else {
        let problem = "must be https; http is supported only for this machine";
        Err(BundleConfigError::value("source", problem))
    }
}

/// Parses `HOST/NAME:TAG` or `HOST/NAME@DIGEST`. A host of this machine is reached by http.
fn registry(text: &str) -> Result<SourceLocation, BundleConfigError> {
    let invalid = || {
        let problem = "is not oci://HOST/NAME:TAG or oci://HOST/NAME@sha256:DIGEST";
        BundleConfigError::value("source", problem)
    };
    let (host, rest) = text.split_once('/').ok_or_else(invalid)?;
    let (repository, reference) = rest
        .split_once('@')
        .or_else(|| rest.rsplit_once(':'))
        .ok_or_else(invalid)?;
    let is_word = |text: &str, others: &str| {
        !text.is_empty()
            && text.split('/').all(|part| !matches!(part, "" | "." | ".."))
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || others.contains(c))
    };
    if !is_word(repository, "/._-") || !is_word(reference, "._-:") {
        return Err(invalid());
    }
    let secure = Url::parse(&format!("https://{host}/")).map_err(|_| invalid())?;
    let plain = Url::parse(&format!("http://{host}/")).map_err(|_| invalid())?;
    let base = if check_secure(&plain).is_ok() {
        plain
    } else {
        secure
    };
    Ok(SourceLocation::Registry {
        base,
        repository: repository.to_owned(),
        reference: reference.to_owned(),
    })
}

fn read_file(key: &'static str, path: &Path) -> Result<String, BundleConfigError> {
    std::fs::read_to_string(path).map_err(|source| BundleConfigError::Unreadable {
        key,
        path: path.to_owned(),
        source,
    })
}

fn default_minimum_version() -> u64 {
    1
}

fn default_poll_interval() -> Duration {
    Duration::from_secs(30)
}
