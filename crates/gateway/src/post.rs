//! A POST that is authenticated and belongs to a session, but is not parsed yet.

use std::sync::Arc;

use axum::http::HeaderMap;
use bytes::Bytes;
use wardgate_domain::{Caller, Digest};
use wardgate_mcp::Version;
use wardgate_mcp_server::{JsonRpcRequest, RequestMeta, RpcError, StreamAcceptance, named_version};
use wardgate_resilience::LimitReport;
use wardgate_resilience::concurrency::Slot;

use crate::catalogue::View;
use crate::request_context::RequestContext;
use crate::scopes::TokenAccess;
use crate::session::{SseSession, StreamableSession, StreamableSessions};

/// The transport of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// `/mcp`: Streamable HTTP as in the specification.
    Mcp,
    /// `/message`: one response to one POST, without transport headers.
    Message,
    /// `/messages/`: the answer is sent on the stream of an HTTP+SSE session.
    Sse,
}

/// A POST that is authenticated, but not parsed yet.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) transport: Transport,
    /// Whether the client accepts a stream as the response. Batches and other transports have no streams.
    pub(crate) accepts_stream: StreamAcceptance,
    pub(crate) view: View,
    pub(crate) caller: Arc<Caller>,
    /// The scopes of the token.
    pub(crate) access: TokenAccess,
    pub(crate) client_ip: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The session of HTTP+SSE, if the message belongs to one.
    pub(crate) session: Option<Arc<SseSession>>,
    /// The session of Streamable HTTP, if the message belongs to one.
    pub(crate) streamable: Option<Arc<StreamableSession>>,
    /// The limits for the headers of the response, or `None` if no limit is configured.
    pub(crate) limit_report: Option<Arc<LimitReport>>,
}

impl Post {
    /// Returns the protocol for the record: the version, or the name of the plain endpoint.
    pub(crate) fn protocol(&self, version: Version) -> &'static str {
        match self.transport {
            Transport::Mcp | Transport::Sse => version.as_str(),
            Transport::Message => "jsonrpc",
        }
    }

    /// Returns the name of the session, to which sealed values are bound.
    pub(crate) fn session_name(&self) -> Option<String> {
        match (&self.session, &self.streamable) {
            (Some(session), _) => Some(session.name()),
            (None, session) => Some(session.as_ref()?.name()),
        }
    }

    /// Returns the digest by which the memory service knows the subscriptions of the session, if there is a session.
    pub(crate) fn session_digest(&self) -> Option<Digest> {
        match &self.session {
            Some(session) => Some(session.digest()),
            None => Some(self.streamable.as_ref()?.digest()),
        }
    }

    /// Looks up the session that the request names.
    pub(crate) async fn attach_session(
        &mut self,
        sessions: &StreamableSessions,
    ) -> Result<(), RpcError> {
        if self.transport == Transport::Mcp {
            let found = sessions.find(&self.view, &self.caller, &self.headers);
            self.streamable = found.await?;
        }
        Ok(())
    }

    /// Returns the MCP `ClientCapabilities` of the client of a request with `meta`, or `None` if it declared none. A client of
    /// an older version declared them at the beginning of its session.
    pub(crate) fn client_capabilities(
        &self,
        meta: &RequestMeta<'_>,
        version: Version,
    ) -> Option<String> {
        match (&self.streamable, &self.session) {
            _ if version.is_modern() => meta.capabilities().map(ToOwned::to_owned),
            (Some(session), _) => session.declared.to_json(),
            (None, Some(session)) => session.declared_capabilities().to_json(),
            (None, None) => None,
        }
    }

    /// Creates the context of `request` for the pipeline.
    pub(crate) fn request_context(
        &self,
        request: &JsonRpcRequest<'_>,
        version: Version,
        slot: Option<Slot>,
    ) -> RequestContext {
        RequestContext {
            slot,
            id: request.id.to_owned(),
            version,
            caller: Arc::clone(&self.caller),
            client_ip: self.client_ip.clone(),
            view: self.view.clone(),
            access: self.access.clone(),
            limit_report: self.limit_report.clone(),
        }
    }

    /// Returns the version that the session negotiated, or that the header names.
    pub(crate) fn version(&self) -> Result<Option<Version>, RpcError> {
        match &self.session {
            Some(session) => Ok(Some(session.version())),
            None if let Some(session) = &self.streamable => Ok(Some(session.version)),
            None => named_version(&self.headers),
        }
    }
}

/// Returns whether `body` is a batch of messages, which has one response.
pub(crate) fn is_batch(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"[")
}
