//! One connection to a server, by either transport.

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

    /// The tools that the server was found to offer over it.
    pub(super) fn listing(&self) -> &ConnectionTools {
        match self {
            Self::Stdio(connection) => &connection.listing,
            Self::Http(connection) => &connection.listing,
        }
    }

    /// The level from which on the server sends log messages over it.
    pub(super) fn logging(&self) -> &ServerLogLevel {
        match self {
            Self::Stdio(connection) => &connection.logging,
            Self::Http(connection) => &connection.logging,
        }
    }

    /// Whether it ends when another server takes over: it is a process, or a session.
    pub(super) fn has_session(&self) -> bool {
        match self {
            Self::Stdio(_) => true,
            Self::Http(connection) => connection.has_session(),
        }
    }

    /// Whether tools can be called as tasks that are followed here.
    pub(super) fn has_tasks(&self) -> bool {
        match self {
            Self::Stdio(connection) => connection.has_tasks(),
            Self::Http(connection) => connection.tasks,
        }
    }

    /// What the server says of its skills, if it has any.
    pub(super) fn skills(&self) -> Option<SkillsCapability> {
        match self {
            Self::Stdio(connection) => connection.skills(),
            Self::Http(connection) => connection.skills,
        }
    }

    /// Asks for what nobody waits for the answer to.
    pub(super) fn request_later(&self, request: &UpstreamRequest<'_>) {
        match self {
            Self::Stdio(connection) => connection.request_later(request),
            Self::Http(connection) => connection.request_later(request),
        }
    }

    /// Says something that has no answer.
    pub(super) async fn say(&self, message: Vec<u8>) -> Result<(), UpstreamError> {
        match self {
            Self::Stdio(connection) => connection.say(message).await,
            Self::Http(connection) => connection.say(message).await,
        }
    }

    /// The same, without waiting for it.
    pub(super) fn say_later(&self, message: Vec<u8>) {
        match self {
            Self::Stdio(connection) => connection.say_later(message),
            Self::Http(connection) => connection.say_later(message),
        }
    }

    /// Whether arguments are repeated as headers.
    pub(super) fn repeats_arguments(&self) -> bool {
        match self {
            Self::Stdio(_) => false,
            Self::Http(connection) => connection.repeats_arguments(),
        }
    }

    /// One request and its answer, whatever that begins.
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
