//! Syslog messages (RFC 5424) within TLS (RFC 5425).
//!
//! Syslog has no answer. A batch has a connection of its own, which we end by `close_notify`; the receiver ends its side once
//! it has read all of the batch (RFC 5425, section 4.4), and a connection that breaks instead says that it has not.

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
use crate::event::{ExportEvent, Severity};
use crate::settings::SyslogSettings;

/// `log audit` (RFC 5424, section 6.2.1).
const FACILITY: u8 = 13;

/// A receiver.
#[derive(Debug)]
pub(crate) struct SyslogTarget {
    address: String,
    host: ServerName<'static>,
    ca_file: PathBuf,
    identity: Option<[PathBuf; 2]>,
    /// What this machine is called in messages.
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
            hostname: hostname(),
        };
        target
            .config()
            .map_err(|(path, problem)| unfit(export, &path, &problem))?;
        Ok(target)
    }

    /// What the files say now: a certificate that was renewed is used for the next batch. On failure, which file is no good
    /// and why.
    fn config(&self) -> Result<ClientConfig, (PathBuf, String)> {
        let pem =
            |path: &PathBuf| std::fs::read(path).map_err(|error| (path.clone(), error.to_string()));
        let certificates = |path: &PathBuf| {
            let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem(path)?).collect();
            let found = found.ok().filter(|found| !found.is_empty());
            found.ok_or_else(|| (path.clone(), "holds no certificate in PEM".to_owned()))
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
        let key = key.map_err(|_| (key_file.clone(), "holds no private key in PEM".to_owned()))?;
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
            // Receivers say nothing; what they may say is read to the end.
            let mut said = [0; 1_024];
            loop {
                match stream.read(&mut said).await {
                    Ok(0) => return Ok(()),
                    Ok(_) => {}
                    // The end of the connection without `close_notify`: read to its end all the same.
                    Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                        return Ok(());
                    }
                    Err(error) => return Err(SendError::from(error)),
                }
            }
        };
        timeout(SEND_LIMIT, sending)
            .await
            .map_err(|_| SendError::Timeout)?
    }

    /// Adds a message behind its length in bytes (RFC 5425, section 4.3).
    fn frame(&self, event: &ExportEvent, frames: &mut Vec<u8>) {
        let priority = FACILITY * 8 + severity(event.severity);
        let message = format!(
            "<{priority}>1 {time} {hostname} wardgate - {kind} - {text}",
            time = event.time,
            hostname = self.hostname,
            kind = event.kind.as_str(),
            text = event.text,
        );
        frames.extend_from_slice(format!("{} ", message.len()).as_bytes());
        frames.extend_from_slice(message.as_bytes());
    }
}

/// As the kernel has it, in the characters that a message may name it by; `-` where nobody knows.
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

/// From 0, the most severe, to 7.
fn severity(severity: Severity) -> u8 {
    match severity {
        Severity::Informational => 6,
        Severity::Low => 5,
        Severity::Medium => 4,
    }
}

#[cfg(test)]
mod tests {
    use wardgate_domain::Timestamp;

    use super::*;
    use crate::settings::RecordKind;

    #[test]
    fn a_message_stands_behind_its_length_in_bytes() {
        let target = SyslogTarget {
            address: String::new(),
            host: ServerName::try_from("siem.example").unwrap(),
            ca_file: PathBuf::new(),
            identity: None,
            hostname: "node-1".to_owned(),
        };
        let event = ExportEvent {
            uid: "log#7".to_owned(),
            sequence: 7,
            kind: RecordKind::Outcome,
            time: Timestamp::from_micros(1_762_869_000_000_042),
            severity: Severity::Medium,
            text: "Zürich".to_owned(),
        };
        let mut frames = Vec::new();
        target.frame(&event, &mut frames);
        target.frame(&event, &mut frames);
        let message = "<108>1 2025-11-11T13:50:00.000042Z node-1 wardgate - outcome - Zürich";
        let frame = format!("{} {message}", message.len());
        assert_eq!(String::from_utf8(frames).unwrap(), frame.repeat(2));
    }
}
