//! The certificates and the key of one end of a TLS connection, which are checked to match.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use x509_parser::parse_x509_certificate;

/// The error for certificates or keys that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file does not contain the expected PEM section.
    #[error("{} contains no PEM {what}", path.display())]
    Pem {
        /// The path of the file.
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
    },
    /// A certificate is not an X.509 certificate.
    #[error("{} is not an X.509 certificate", path.display())]
    Certificate {
        /// The path of the file.
        path: PathBuf,
    },
    /// The key does not belong to the certificate, or rustls does not support it.
    #[error("{} and {} cannot be used together: {source}", chain.display(), key.display())]
    Key {
        /// The path of the certificate.
        chain: PathBuf,
        /// The path of the key.
        key: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
    /// A certificate cannot be used to verify others.
    #[error("{} cannot be used as a certificate authority: {reason}", path.display())]
    Authority {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// rustls refuses the configuration.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// The PEM files of one end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificates of the authorities that verify the peer, or `None` if the peer presents no certificate.
    pub authority: Option<PathBuf>,
    /// The certificate of this end, followed by the intermediate certificates.
    pub chain: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

impl Files {
    /// Reads all files. Equal contents are the same identity.
    pub(crate) fn read_contents(&self) -> Result<FileContents, Error> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| Error::File {
                path: path.to_owned(),
                source,
            })
        };
        Ok(FileContents {
            authority: self.authority.as_deref().map(read).transpose()?,
            chain: read(&self.chain)?,
            key: read(&self.key)?,
        })
    }

    /// Parses the contents of the files, and checks that they match.
    pub(crate) fn parse(&self, contents: &FileContents) -> Result<Identity, Error> {
        let chain = certificates(&self.chain, &contents.chain)?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|_| Error::Pem {
            path: self.key.clone(),
            what: "private key",
        })?;
        let [issued, ends] = validity(&self.chain, &chain)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        // A key that belongs to another certificate is refused here, because files that are replaced one by one may be
        // read in between.
        let certified = CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider);
        certified.map_err(|source| Error::Key {
            chain: self.chain.clone(),
            key: self.key.clone(),
            source,
        })?;
        let authorities = match (&self.authority, &contents.authority) {
            (Some(path), Some(text)) => Some(Arc::new(roots(path, text)?)),
            _ => None,
        };
        Ok(Identity {
            authorities,
            chain,
            key,
            provider,
            issued,
            ends,
        })
    }
}

/// The contents of the files of one end of a connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct FileContents {
    authority: Option<Vec<u8>>,
    chain: Vec<u8>,
    key: Vec<u8>,
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(Error::Pem {
            path: path.to_owned(),
            what: "certificate",
        }),
    }
}

fn roots(path: &Path, text: &[u8]) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path, text)? {
        store.add(certificate).map_err(|error| Error::Authority {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
    }
    Ok(store)
}

/// Returns the times from which and until which the first certificate is valid, in seconds since 1970.
fn validity(path: &Path, chain: &[CertificateDer<'_>]) -> Result<[i64; 2], Error> {
    let leaf = chain.first().map(|leaf| parse_x509_certificate(leaf));
    let Some(Ok((_, leaf))) = leaf else {
        return Err(Error::Certificate {
            path: path.to_owned(),
        });
    };
    let validity = leaf.validity();
    Ok([validity.not_before, validity.not_after].map(|time| time.timestamp()))
}

/// A certificate with its key, and the authorities that verify the peer.
#[derive(Debug)]
pub struct Identity {
    authorities: Option<Arc<RootCertStore>>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: Arc<CryptoProvider>,
    /// The time from which the certificate is valid, in seconds since 1970.
    pub issued: i64,
    /// The time until which the certificate is valid, in seconds since 1970.
    pub ends: i64,
}

impl Identity {
    /// Returns the configuration of a server that supports `protocols` (ALPN, RFC 7301). If there are authorities,
    /// clients must present a certificate that they signed. It supports TLS 1.3 and 1.2 with the cipher suites that
    /// rustls considers safe.
    pub fn server_config(&self, protocols: &[&[u8]]) -> Result<ServerConfig, Error> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?;
        let builder = match &self.authorities {
            Some(roots) => {
                let provider = Arc::clone(&self.provider);
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider)
                        .build()
                        .map_err(|error| rustls::Error::General(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }

    /// Returns the configuration of a client that supports `protocols` and verifies servers only with the authorities
    /// of this identity.
    pub fn client_config(&self, protocols: &[&[u8]]) -> Result<ClientConfig, Error> {
        let nobody = || Arc::new(RootCertStore::empty());
        let roots = self.authorities.clone().unwrap_or_else(nobody);
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }
}
