//! The network settings of a service: trusted authorities, a client certificate and a proxy.

use std::fmt;

use reqwest::{Certificate, ClientBuilder, Identity, Proxy};
use url::Url;

use crate::Secret;

/// The network settings of one service.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct NetworkSettings {
    /// The TLS settings of connections to the service.
    pub tls: TlsSettings,
    /// The HTTP proxy of connections to the service. The proxy resolves names itself, so it decides which addresses are
    /// reached.
    pub proxy: Option<Url>,
}

/// TLS settings, as PEM.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct TlsSettings {
    /// The certificate authorities that are trusted instead of the system's, or `None` for the system's.
    pub ca: Option<String>,
    /// The client certificate and its key, if there is one.
    pub identity: Option<ClientIdentity>,
}

/// A PEM text that cannot be used for TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct InvalidTls {
    /// The name of the setting: `ca`, `cert` or `key`.
    pub field: &'static str,
    /// What is wrong with the text.
    pub problem: &'static str,
}

impl TlsSettings {
    /// Creates the settings from the texts of PEM files: authorities, client certificate, and private key of the
    /// certificate.
    pub fn from_pem(
        ca: Option<String>,
        cert: Option<String>,
        key: Option<String>,
    ) -> Result<Self, InvalidTls> {
        const CERTIFICATE: (&str, &str) =
            ("-----BEGIN CERTIFICATE-----", "contains no PEM certificate");
        const PRIVATE_KEY: (&str, &str) = ("PRIVATE KEY-----", "contains no PEM private key");
        for (field, text, (marker, problem)) in [
            ("ca", &ca, CERTIFICATE),
            ("cert", &cert, CERTIFICATE),
            ("key", &key, PRIVATE_KEY),
        ] {
            if text.as_ref().is_some_and(|text| !text.contains(marker)) {
                return Err(InvalidTls { field, problem });
            }
        }
        let identity = match (cert, key) {
            (Some(certificate), Some(key)) => Some(ClientIdentity {
                certificate,
                key: Secret::from(key),
            }),
            (None, None) => None,
            (Some(_), None) => {
                let (field, problem) = ("cert", "requires a `key`, which is missing");
                return Err(InvalidTls { field, problem });
            }
            (None, Some(_)) => {
                let (field, problem) = ("key", "requires a `cert`, which is missing");
                return Err(InvalidTls { field, problem });
            }
        };
        Ok(Self { ca, identity })
    }
}

/// A client certificate with its intermediate certificates, and its private key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificates, as PEM.
    pub certificate: String,
    /// The private key, as PEM.
    pub key: Secret,
}

/// A proxy that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProxy {
    /// The text is not the URL of an HTTP proxy.
    #[error("is not an http or https URL")]
    Url,
    /// The proxy would receive the client certificate that is meant for the service.
    #[error("would receive the client certificate; use a proxy with an http URL")]
    ReceivesIdentity,
}

impl NetworkSettings {
    /// Creates the settings from TLS settings and the URL of a proxy.
    pub fn new(tls: TlsSettings, proxy: Option<&str>) -> Result<Self, InvalidProxy> {
        let proxy = proxy.map(|text| Self::read_proxy(text).ok_or(InvalidProxy::Url));
        let network = Self {
            tls,
            proxy: proxy.transpose()?,
        };
        if network.shows_proxy_identity() {
            return Err(InvalidProxy::ReceivesIdentity);
        }
        Ok(network)
    }

    /// Parses the URL of a proxy. Returns `None` if `text` is not an http(s) URL.
    pub fn read_proxy(text: &str) -> Option<Url> {
        let url = Url::parse(text).ok();
        url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
    }

    /// Returns whether the proxy would receive the client certificate that is meant for the service.
    pub fn shows_proxy_identity(&self) -> bool {
        let proxy = self.proxy.as_ref();
        self.tls != TlsSettings::default() && proxy.is_some_and(|proxy| proxy.scheme() == "https")
    }

    /// Returns the settings for another service: the same proxy, without the TLS settings.
    pub(crate) fn of_another(&self) -> Self {
        Self {
            tls: TlsSettings::default(),
            proxy: self.proxy.clone(),
        }
    }

    /// Applies the settings to `builder`, and disables proxies of the environment. Fails if the certificates or the key
    /// are invalid.
    pub fn apply(&self, builder: ClientBuilder) -> Result<ClientBuilder, reqwest::Error> {
        let mut builder = builder.no_proxy();
        if let Some(pem) = &self.tls.ca {
            builder = builder.tls_certs_only(Certificate::from_pem_bundle(pem.as_bytes())?);
        }
        if let Some(ClientIdentity { certificate, key }) = &self.tls.identity {
            let pem = format!("{certificate}\n{}", key.expose());
            builder = builder.identity(Identity::from_pem(pem.as_bytes())?);
        }
        if let Some(proxy) = &self.proxy {
            builder = builder.proxy(Proxy::all(proxy.clone())?);
        }
        Ok(builder)
    }
}

impl fmt::Debug for NetworkSettings {
    /// Omits what may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkSettings")
            .field("has_ca", &self.tls.ca.is_some())
            .field("has_identity", &self.tls.identity.is_some())
            .field("proxy", &self.proxy.as_ref().and_then(Url::host_str))
            .finish()
    }
}

impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSettings")
            .field("has_ca", &self.ca.is_some())
            .field("has_identity", &self.identity.is_some())
            .finish()
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientIdentity")
    }
}

#[cfg(test)]
mod tests;
