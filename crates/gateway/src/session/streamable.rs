//! Sessions of Streamable HTTP before 2026-07-28.
//!
//! The id of a session, which its client sends with each request, holds the sealed state of the session: version, capabilities,
//! number. The store, which all replicas share, knows only whether the session still exists and its log level. A request
//! without a session is answered by itself.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use wardgate_domain::{Ambient, Caller, Digest};
use wardgate_gateway_store::{Purpose, Sealer, SessionId, SessionSettings, Store};
use wardgate_mcp::Version;
use wardgate_mcp::header::SESSION_ID;
use wardgate_mcp_server::{
    DeclaredCapabilities, JsonRpcRequest, LogLevel, RpcError, named_version,
};

use crate::catalogue::View;

/// A session, as a request of its client finds it.
#[derive(Debug)]
pub(crate) struct StreamableSession {
    pub(crate) id: SessionId,
    pub(crate) version: Version,
    /// The capabilities that the client declared.
    pub(crate) declared: DeclaredCapabilities,
    /// The lowest level of the log messages that the client wants.
    pub(crate) log_level: Option<LogLevel>,
}

/// The content of a session id.
#[derive(Serialize, Deserialize)]
struct SealedSession {
    #[serde(rename = "i")]
    id: String,
    #[serde(rename = "v")]
    version: String,
    #[serde(rename = "c")]
    declared: DeclaredCapabilities,
}

impl StreamableSession {
    /// Returns the name of the session, to which sealed values are bound.
    pub(crate) fn name(&self) -> String {
        hex(self.id)
    }

    /// Returns the digest by which the memory service knows the subscriptions of the session.
    pub(crate) fn digest(&self) -> Digest {
        Digest::compute(&self.id.0)
    }
}

fn hex(id: SessionId) -> String {
    format!("{:032x}", u128::from_be_bytes(id.0))
}

/// The sessions of all clients, in the store that all replicas share.
pub(crate) struct StreamableSessions {
    store: Arc<Store>,
    sealer: Arc<Sealer>,
    ambient: Ambient,
}

impl StreamableSessions {
    pub(crate) fn new(store: &Arc<Store>, sealer: &Arc<Sealer>, ambient: &Ambient) -> Self {
        Self {
            store: Arc::clone(store),
            sealer: Arc::clone(sealer),
            ambient: ambient.clone(),
        }
    }

    /// Begins a session for the client that sent `initialize`, and returns its id. Returns `None` if the session cannot be
    /// stored; the requests of the client are then answered without a session.
    pub(crate) async fn begin(
        &self,
        view: &View,
        caller: &Caller,
        initialize: &JsonRpcRequest<'_>,
        version: Version,
    ) -> Option<HeaderValue> {
        let id = SessionId(self.ambient.random());
        let sealed = SealedSession {
            id: hex(id),
            version: version.as_str().to_owned(),
            declared: DeclaredCapabilities::from_initialize(initialize, version),
        };
        let path = view.path();
        let text = self.sealer.seal(Purpose::Session, caller, &path, &sealed)?;
        let begun = self.store.begin_session(id, caller.person()).await;
        begun.ok()?;
        HeaderValue::try_from(text).ok()
    }

    /// Returns the session that a request of an older version names, or `None` if it names none.
    pub(crate) async fn find(
        &self,
        view: &View,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Result<Option<Arc<StreamableSession>>, RpcError> {
        let Some(named) = headers.get(SESSION_ID) else {
            return Ok(None);
        };
        let version = named_version(headers)?;
        // A modern request belongs to no session, even if it names one.
        if version.is_some_and(Version::is_modern) {
            return Ok(None);
        }
        let (text, path) = (named.to_str().ok(), view.path());
        let opened = text.and_then(|text| {
            let sealer = &self.sealer;
            sealer.open::<SealedSession>(Purpose::Session, caller, &path, text)
        });
        let sealed = opened.ok_or_else(RpcError::unknown_session)?;
        let id = u128::from_str_radix(&sealed.id, 16).map_err(|_| RpcError::unknown_session())?;
        let id = SessionId(id.to_be_bytes());
        // Some clients send another one of the older versions than was negotiated. The negotiated version applies.
        let agreed: Version = sealed
            .version
            .parse()
            .map_err(|_| RpcError::unknown_session())?;
        // An unavailable store ends no session, because the sealed id is sufficient.
        let visited = self.store.find_session(id, caller.person()).await;
        let held = visited.unwrap_or(Some(SessionSettings { log_level: None }));
        let held = held.ok_or_else(RpcError::unknown_session)?;
        Ok(Some(Arc::new(StreamableSession {
            id,
            version: agreed,
            declared: sealed.declared,
            log_level: held.log_level.as_deref().and_then(LogLevel::from_name),
        })))
    }

    /// Sets the lowest level of the log messages that the client of `session` wants.
    pub(crate) async fn set_log_level(
        &self,
        session: &StreamableSession,
        level: LogLevel,
    ) -> Result<(), RpcError> {
        let set = self.store.set_log_level(session.id, level.as_str()).await;
        set.map_err(|_| RpcError::store_unavailable())
    }

    /// Ends the session that a DELETE names.
    pub(crate) async fn end(
        &self,
        view: &View,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Result<Response, RpcError> {
        let session = self.find(view, caller, headers).await?;
        let session = session.ok_or_else(|| {
            RpcError::invalid_request("specify the session to end in the header Mcp-Session-Id")
        })?;
        let ended = self.store.end_session(session.id).await;
        ended.map_err(|_| RpcError::store_unavailable())?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }
}
