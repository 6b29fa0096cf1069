//! The ways to a security tool.

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

/// How long a security tool may take for one batch.
pub(crate) const SEND_LIMIT: Duration = Duration::from_secs(10);

/// Why a batch is not known to have been taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// A file that was there at the start.
    #[error("cannot read a file that it needs: {0}")]
    File(String),
    #[error("it cannot be reached: {0}")]
    Http(#[from] EgressError),
    #[error("the connection failed: {0}")]
    Connection(#[from] std::io::Error),
    #[error(
        "it ended the connection without the close_notify of TLS; where it never sends one, set unclean_close"
    )]
    UncleanClose,
    /// It answered that it took the batch, and not in the protocol.
    #[error("its answer is none of OTLP: {0}")]
    Answer(#[from] prost::DecodeError),
    #[error("it did not take the batch within {} s", SEND_LIMIT.as_secs())]
    Timeout,
    /// It answered, and not that it took the batch.
    #[error("it answered {status}")]
    Refused {
        status: u16,
        /// As it asks.
        wait: Duration,
    },
}

impl SendError {
    /// As a label of metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Http(_) | Self::Connection(_) | Self::UncleanClose | Self::Timeout => {
                "unreachable"
            }
            Self::Refused { .. } | Self::Answer(_) => "refused",
        }
    }

    /// How long it asks to be left alone.
    pub(crate) fn asked_for(&self) -> Duration {
        match self {
            Self::Refused { wait, .. } => *wait,
            _ => Duration::ZERO,
        }
    }
}

/// The way of one export; it connects when there is something to send.
#[derive(Debug)]
pub(crate) enum ExportTransport {
    Syslog(SyslogTarget),
    Webhook(HttpTarget, EventFormat),
    Otlp(HttpTarget),
}

impl ExportTransport {
    /// Reads the files that `export` names, so that what is wrong with them shows at the start.
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

    /// Sends `events`, which are not empty; returns how many of them the tool took and will never keep.
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

/// The text of a file of `export`.
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
