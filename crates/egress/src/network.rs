//! The way to a service through the operator's network: the authorities that are trusted, our certificate, a proxy.

use std::fmt;

use reqwest::{Certificate, ClientBuilder, Identity, Proxy};
use url::Url;

use crate::Secret;

/// How one service is reached.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct NetworkSettings {
    /// Whom its TLS connections trust, and who we are there.
    pub tls: TlsSettings,
    /// The HTTP proxy that connections go through. It resolves names itself, so that which addresses are reached is for it
    /// to decide.
    pub proxy: Option<Url>,
}

/// Settings of TLS, as PEM.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct TlsSettings {
    /// The certificate authorities that are trusted instead of the system's.
    pub ca: Option<String>,
    /// What we prove who we are with.
    pub identity: Option<ClientIdentity>,
}

/// PEM that TLS cannot be set up with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct InvalidTls {
    /// `ca`, `cert` or `key`.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl TlsSettings {
    /// Of the texts of PEM files: authorities, our certificate, and its private key.
    pub fn from_pem(
        ca: Option<String>,
        cert: Option<String>,
        key: Option<String>,
    ) -> Result<Self, InvalidTls> {
        const CERTIFICATE: (&str, &str) =
            ("-----BEGIN CERTIFICATE-----", "holds no certificate in PEM");
        const PRIVATE_KEY: (&str, &str) = ("PRIVATE KEY-----", "holds no private key in PEM");
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
                let (field, problem) = ("cert", "belongs to a `key`, which is missing");
                return Err(InvalidTls { field, problem });
            }
            (None, Some(_)) => {
                let (field, problem) = ("key", "belongs to a `cert`, which is missing");
                return Err(InvalidTls { field, problem });
            }
        };
        Ok(Self { ca, identity })
    }
}

/// A client's certificate, with those between it and its authority, and its private key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificates.
    pub certificate: String,
    /// The key.
    pub key: Secret,
}

impl NetworkSettings {
    /// The proxy at the URL `text`. None where that is no http(s) URL.
    pub fn read_proxy(text: &str) -> Option<Url> {
        let url = Url::parse(text).ok();
        url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
    }

    /// Whether the proxy would be shown the certificate that is for the service behind it.
    pub fn shows_proxy_identity(&self) -> bool {
        let proxy = self.proxy.as_ref();
        self.tls != TlsSettings::default() && proxy.is_some_and(|proxy| proxy.scheme() == "https")
    }

    /// The same way for another service: the certificates are the first one's.
    pub(crate) fn of_another(&self) -> Self {
        Self {
            tls: TlsSettings::default(),
            proxy: self.proxy.clone(),
        }
    }

    /// A client that goes this way, and uses no proxy of the environment. Fails where certificates or key cannot be used.
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
    /// Without what may be secret.
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
