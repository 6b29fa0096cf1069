//! One POST: authenticated, with the session it belongs to, not yet parsed.

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

/// The transport that a message came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// `/mcp`: the specification and nothing else.
    Mcp,
    /// `/message`: one POST, one answer, no transport headers.
    Message,
    /// `/messages/`: what is answered goes onto the stream of a session.
    Sse,
}

/// One POST, authenticated but not yet parsed.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) transport: Transport,
    /// Whether its client takes a stream as the answer; a batch and other transports have none.
    pub(crate) accepts_stream: StreamAcceptance,
    pub(crate) view: View,
    pub(crate) caller: Arc<Caller>,
    /// The scopes of the token.
    pub(crate) access: TokenAccess,
    pub(crate) client_ip: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// With a stream of HTTP+SSE.
    pub(crate) session: Option<Arc<SseSession>>,
    /// In a session of Streamable HTTP.
    pub(crate) streamable: Option<Arc<StreamableSession>>,
    /// For the headers of the answer. None where no limit is configured.
    pub(crate) limit_report: Option<Arc<LimitReport>>,
}

impl Post {
    /// What it speaks, for the record: the version, or the name of the plain endpoint.
    pub(crate) fn protocol(&self, version: Version) -> &'static str {
        match self.transport {
            Transport::Mcp | Transport::Sse => version.as_str(),
            Transport::Message => "jsonrpc",
        }
    }

    /// What is sealed within its session is of use nowhere else.
    pub(crate) fn session_name(&self) -> Option<String> {
        match (&self.session, &self.streamable) {
            (Some(session), _) => Some(session.name()),
            (None, session) => Some(session.as_ref()?.name()),
        }
    }

    /// Under what the memory knows the subscriptions of its client's session, if it has one.
    pub(crate) fn session_digest(&self) -> Option<Digest> {
        match &self.session {
            Some(session) => Some(session.digest()),
            None => Some(self.streamable.as_ref()?.digest()),
        }
    }

    /// Looks up the session it names.
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

    /// What the client of a request with `meta` said that it can be asked for, MCP `ClientCapabilities`; none: nothing. What
    /// an older client can do, it said when its session began.
    pub(crate) fn client_capabilities(
        &self,
        meta: &RequestMeta<'_>,
        version: Version,
    ) -> Option<String> {
        match (&self.streamable, &self.session) {
            _ if version.is_modern() => meta.capabilities().map(ToOwned::to_owned),
            (Some(session), _) => session.declared.to_json(),
            (None, Some(session)) => session.declared().to_json(),
            (None, None) => None,
        }
    }

    /// The context of `request` for the pipeline.
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

    /// The version that was agreed on, or is named in the header.
    pub(crate) fn version(&self) -> Result<Option<Version>, RpcError> {
        match &self.session {
            Some(session) => Ok(Some(session.version())),
            None if let Some(session) = &self.streamable => Ok(Some(session.version)),
            None => named_version(&self.headers),
        }
    }
}

/// Whether `body` holds several messages at once, which have one answer together.
pub(crate) fn is_batch(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"[")
}
