//! Transports to security tools.

mod http;
mod otlp;
mod syslog;

use std::path::Path;
use std::time::Duration;

use wardgate_domain::Ambient;
use wardgate_egress::EgressError;

use crate::Error;
use crate::event::ExportEvent;
use crate::settings::{EventFormat, ExportSettings, TransportSettings};

use self::http::HttpTarget;
use self::syslog::SyslogTarget;

/// Timeout for sending a batch.
pub(crate) const SEND_LIMIT: Duration = Duration::from_secs(10);

/// The reason why it is not certain that a batch was received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// A file that was readable at the start cannot be used any more.
    #[error("cannot read a required file: {0}")]
    File(String),
    #[error("it cannot be reached: {0}")]
    Http(#[from] EgressError),
    #[error("the connection failed: {0}")]
    Connection(#[from] std::io::Error),
    #[error(
        "it closed the connection without the close_notify of TLS; if it never sends one, set unclean_close"
    )]
    UncleanClose,
    /// The server confirmed the batch, but its response is not valid.
    #[error("its answer is not an OTLP response: {0}")]
    Answer(#[from] prost::DecodeError),
    #[error("it did not accept the batch within {} s", SEND_LIMIT.as_secs())]
    Timeout,
    /// The server responded that it did not accept the batch.
    #[error("it responded with status {status}")]
    Refused {
        status: u16,
        /// The pause that the server asks for.
        wait: Duration,
    },
}

impl SendError {
    /// Returns the reason as a label of metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Http(_) | Self::Connection(_) | Self::UncleanClose | Self::Timeout => {
                "unreachable"
            }
            Self::Refused { .. } | Self::Answer(_) => "refused",
        }
    }

    /// Returns the pause that the server asks for.
    pub(crate) fn asked_for(&self) -> Duration {
        match self {
            Self::Refused { wait, .. } => *wait,
            _ => Duration::ZERO,
        }
    }
}

/// The transport of an export. It connects only to send a batch.
#[derive(Debug)]
pub(crate) enum ExportTransport {
    Syslog(SyslogTarget),
    Webhook(HttpTarget, EventFormat),
    Otlp(HttpTarget),
}

impl ExportTransport {
    /// Creates the transport and reads the files that `export` refers to, so that errors are reported at the start.
    pub(crate) fn open(export: &ExportSettings) -> Result<Self, Error> {
        let name = &export.name;
        Ok(match export.transport()? {
            TransportSettings::Syslog(settings) => {
                Self::Syslog(SyslogTarget::open(name, settings)?)
            }
            TransportSettings::Webhook(settings) => {
                Self::Webhook(HttpTarget::open(name, settings)?, export.format)
            }
            TransportSettings::Otlp(settings) if settings.signing_key_file.is_some() => {
                return Err(Error::Signature(name.clone()));
            }
            TransportSettings::Otlp(settings) => Self::Otlp(otlp::open(name, settings)?),
        })
    }

    /// Sends `events`, which must not be empty. Returns how many of them the tool has received but rejected permanently.
    pub(crate) async fn send(
        &self,
        events: &[ExportEvent],
        ambient: &Ambient,
    ) -> Result<u64, SendError> {
        match self {
            Self::Syslog(target) => target.send(events).await.map(|()| 0),
            Self::Webhook(target, format) => target
                .send_lines(events, *format, ambient)
                .await
                .map(|()| 0),
            Self::Otlp(target) => otlp::send(target, events, ambient).await,
        }
    }
}

/// Reads a file of `export`.
fn read_file(export: &str, path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|problem| unfit(export, path, &problem))
}

fn unfit(export: &str, path: &Path, problem: &dyn std::fmt::Display) -> Error {
    Error::File {
        export: export.to_owned(),
        path: path.to_owned(),
        problem: problem.to_string(),
    }
}
