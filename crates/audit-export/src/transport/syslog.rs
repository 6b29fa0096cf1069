//! Sends syslog messages (RFC 5424) over TLS (RFC 5425).
//!
//! Syslog has no responses. Each batch uses a separate connection, which we end with `close_notify`. The receiver closes its side
//! with `close_notify` as well once it has read the complete batch (RFC 5425, section 4.4). A connection that ends in any other
//! way means that the batch was not received, except for receivers that are known never to send `close_notify`.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{SEND_LIMIT, SendError, unfit};
use crate::Error;
use crate::event::{EventSeverity, ExportEvent};
use crate::settings::SyslogSettings;

/// `log audit` (RFC 5424, section 6.2.1).
const FACILITY: u8 = 13;

/// A syslog receiver.
#[derive(Debug)]
pub(crate) struct SyslogTarget {
    address: String,
    host: ServerName<'static>,
    ca_file: PathBuf,
    identity: Option<[PathBuf; 2]>,
    /// Whether a connection that ends without `close_notify` counts as read to its end.
    unclean_close: bool,
    /// The name of this machine in messages.
    hostname: String,
}

impl SyslogTarget {
    pub(super) fn open(export: &str, settings: &SyslogSettings) -> Result<Self, Error> {
        let no_address = || Error::Address {
            export: export.to_owned(),
            address: settings.address.clone(),
        };
        let (host, port) = settings.address.rsplit_once(':').ok_or_else(no_address)?;
        port.parse::<u16>().map_err(|_| no_address())?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = ServerName::try_from(host.to_owned()).map_err(|_| no_address())?;
        let identity = match (&settings.cert_file, &settings.key_file) {
            (Some(cert), Some(key)) => Some([cert.clone(), key.clone()]),
            (None, None) => None,
            _ => return Err(Error::HalfIdentity(export.to_owned())),
        };
        let target = Self {
            address: settings.address.clone(),
            host,
            ca_file: settings.ca_file.clone(),
            identity,
            unclean_close: settings.unclean_close,
            hostname: hostname(),
        };
        target
            .config()
            .map_err(|(path, problem)| unfit(export, &path, &problem))?;
        Ok(target)
    }

    /// Reads the files and returns the TLS configuration, so that a renewed certificate is used for the next batch. The error
    /// names the unusable file and the problem.
    fn config(&self) -> Result<ClientConfig, (PathBuf, String)> {
        let pem =
            |path: &PathBuf| std::fs::read(path).map_err(|error| (path.clone(), error.to_string()));
        let certificates = |path: &PathBuf| {
            let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem(path)?).collect();
            let found = found.ok().filter(|found| !found.is_empty());
            found.ok_or_else(|| (path.clone(), "contains no PEM certificate".to_owned()))
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca_file)? {
            let added = roots.add(certificate);
            added.map_err(|error| (self.ca_file.clone(), error.to_string()))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| (self.ca_file.clone(), error.to_string()))?;
        let builder = builder.with_root_certificates(roots);
        let Some([cert_file, key_file]) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(&pem(key_file)?);
        let key = key.map_err(|_| (key_file.clone(), "contains no PEM private key".to_owned()))?;
        let config = builder.with_client_auth_cert(certificates(cert_file)?, key);
        config.map_err(|error| (cert_file.clone(), error.to_string()))
    }

    /// Sends `events` and waits until the receiver has read them.
    pub(super) async fn send(&self, events: &[ExportEvent]) -> Result<(), SendError> {
        let mut frames = Vec::new();
        for event in events {
            self.frame(event, &mut frames);
        }
        let config = self.config();
        let config = config
            .map_err(|(path, problem)| SendError::File(format!("{}: {problem}", path.display())))?;
        let sending = async {
            let stream = TcpStream::connect(&self.address).await?;
            let connector = TlsConnector::from(Arc::new(config));
            let mut stream = connector.connect(self.host.clone(), stream).await?;
            stream.write_all(&frames).await?;
            stream.shutdown().await?;
            // Receivers send nothing; anything that they send nevertheless is ignored.
            let mut said = [0; 1_024];
            loop {
                match stream.read(&mut said).await {
                    Ok(0) => return Ok(()),
                    Ok(_) => {}
                    // The connection ended without `close_notify`, which an attacker on the network can cause.
                    Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                        return if self.unclean_close {
                            Ok(())
                        } else {
                            Err(SendError::UncleanClose)
                        };
                    }
                    Err(error) => return Err(SendError::from(error)),
                }
            }
        };
        timeout(SEND_LIMIT, sending)
            .await
            .map_err(|_| SendError::Timeout)?
    }

    /// Appends a message, preceded by its length in bytes (RFC 5425, section 4.3).
    fn frame(&self, event: &ExportEvent, frames: &mut Vec<u8>) {
        let priority = FACILITY * 8 + severity(event.severity);
        let message = format!(
            "<{priority}>1 {time} {hostname} wardgate - {kind} - {text}",
            time = event.time,
            hostname = self.hostname,
            kind = event.kind,
            text = event.text,
        );
        frames.extend_from_slice(format!("{} ", message.len()).as_bytes());
        frames.extend_from_slice(message.as_bytes());
    }
}

/// Returns the kernel's host name, reduced to the characters allowed in messages, or `-` if it is unknown.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name
        .chars()
        .filter(char::is_ascii_graphic)
        .take(255)
        .collect();
    if name.is_empty() {
        "-".to_owned()
    } else {
        name
    }
}

/// Returns the severity on the scale from 0, the most severe, to 7.
fn severity(severity: EventSeverity) -> u8 {
    match severity {
        EventSeverity::Informational => 6,
        EventSeverity::Low => 5,
        EventSeverity::Medium => 4,
        EventSeverity::High => 2,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::CertifiedKey;
    use rustls::ServerConfig;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use wardgate_domain::Timestamp;

    use super::*;

    fn event() -> ExportEvent {
        ExportEvent {
            uid: "log#7".to_owned(),
            sequence: 7,
            kind: "outcome",
            time: Timestamp::from_micros(1_762_869_000_000_042),
            severity: EventSeverity::Medium,
            text: "Zürich".to_owned(),
        }
    }

    /// Sends a batch to a receiver that reads all of it and ends the connection with or without `close_notify`.
    async fn send(closes: bool, unclean_close: bool) -> Result<(), SendError> {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let path = std::env::temp_dir().join(format!(
            "wardgate-syslog-{}-{closes}-{unclean_close}.pem",
            std::process::id()
        ));
        std::fs::write(&path, cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key);
        let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = SyslogSettings {
            address: format!("localhost:{}", listener.local_addr().unwrap().port()),
            ca_file: path.clone(),
            cert_file: None,
            key_file: None,
            unclean_close,
        };
        let target = SyslogTarget::open("soc", &settings).unwrap();
        let receive = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut read = Vec::new();
            stream.read_to_end(&mut read).await.unwrap();
            if closes {
                stream.shutdown().await.unwrap();
            }
        };
        let events = [event()];
        let (sent, ()) = tokio::join!(target.send(&events), receive);
        std::fs::remove_file(path).unwrap();
        sent
    }

    #[tokio::test]
    async fn a_batch_is_taken_when_the_receiver_says_that_it_ends() {
        send(true, false).await.unwrap();
        let broken = send(false, false).await;
        assert!(matches!(broken, Err(SendError::UncleanClose)), "{broken:?}");
        send(false, true).await.unwrap();
    }

    #[test]
    fn a_message_stands_behind_its_length_in_bytes() {
        let target = SyslogTarget {
            address: String::new(),
            host: ServerName::try_from("siem.example").unwrap(),
            ca_file: PathBuf::new(),
            identity: None,
            unclean_close: false,
            hostname: "node-1".to_owned(),
        };
        let event = event();
        let mut frames = Vec::new();
        target.frame(&event, &mut frames);
        target.frame(&event, &mut frames);
        let message = "<108>1 2025-11-11T13:50:00.000042Z node-1 wardgate - outcome - Zürich";
        let frame = format!("{} {message}", message.len());
        assert_eq!(String::from_utf8(frames).unwrap(), frame.repeat(2));
    }
}
