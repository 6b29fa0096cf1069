//! A connection to a server over either transport.

use serde_json::value::RawValue;
use wardgate_mcp::Era;

use super::era::SkillsCapability;
use super::error::UpstreamError;
use super::listing::ConnectionTools;
use super::logging::ServerLogLevel;
use super::message::UpstreamRequest;
use super::server_message::Listener;
use super::{http, stdio};

pub(super) enum UpstreamConnection {
    Stdio(stdio::StdioConnection),
    Http(http::HttpConnection),
}

impl UpstreamConnection {
    pub(super) fn is_usable(&self) -> bool {
        match self {
            Self::Stdio(connection) => connection.is_usable(),
            Self::Http(connection) => connection.is_usable(),
        }
    }

    pub(super) fn era(&self) -> Era {
        match self {
            Self::Stdio(connection) => connection.era(),
            Self::Http(connection) => connection.era(),
        }
    }

    /// Returns the tools that the server listed over this connection.
    pub(super) fn listing(&self) -> &ConnectionTools {
        match self {
            Self::Stdio(connection) => &connection.listing,
            Self::Http(connection) => &connection.listing,
        }
    }

    /// Returns the level of the log messages that the server sends over this connection.
    pub(super) fn log_level(&self) -> &ServerLogLevel {
        match self {
            Self::Stdio(connection) => &connection.logging,
            Self::Http(connection) => &connection.logging,
        }
    }

    /// Returns whether the connection ends when another server instance takes over, because it is a process or has a session.
    pub(super) fn has_session(&self) -> bool {
        match self {
            Self::Stdio(_) => true,
            Self::Http(connection) => connection.has_session(),
        }
    }

    /// Returns whether tools can be called as tasks of 2025-11-25, which this crate follows to their end.
    pub(super) fn has_tasks(&self) -> bool {
        match self {
            Self::Stdio(connection) => connection.has_tasks(),
            Self::Http(connection) => connection.tasks,
        }
    }

    /// Returns the skills capability of the server, or `None` if it has no skills.
    pub(super) fn skills(&self) -> Option<SkillsCapability> {
        match self {
            Self::Stdio(connection) => connection.skills(),
            Self::Http(connection) => connection.skills,
        }
    }

    /// Sends a request in the background and ignores the response.
    pub(super) fn request_later(&self, request: &UpstreamRequest<'_>) {
        match self {
            Self::Stdio(connection) => connection.request_later(request),
            Self::Http(connection) => connection.request_later(request),
        }
    }

    /// Sends a message that has no response.
    pub(super) async fn send_message(&self, message: Vec<u8>) -> Result<(), UpstreamError> {
        match self {
            Self::Stdio(connection) => connection.send_message(message).await,
            Self::Http(connection) => connection.send_message(message).await,
        }
    }

    /// Sends a message that has no response, without waiting.
    pub(super) fn send_message_later(&self, message: Vec<u8>) {
        match self {
            Self::Stdio(connection) => connection.send_message_later(message),
            Self::Http(connection) => connection.send_message_later(message),
        }
    }

    /// Returns whether marked arguments must be repeated as headers.
    pub(super) fn repeats_arguments(&self) -> bool {
        match self {
            Self::Stdio(_) => false,
            Self::Http(connection) => connection.repeats_arguments(),
        }
    }

    /// Sends a request and returns the response, even if that is a task that has begun.
    pub(super) async fn request_plainly(
        &self,
        request: &UpstreamRequest<'_>,
        listener: Option<Listener<'_>>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        match self {
            Self::Stdio(connection) => connection.request(request, listener).await,
            Self::Http(connection) => connection.request(request, listener).await,
        }
    }
}
