//! MCP client requests to the gateway, and their responses (MCP 2026-07-28, basic/transports, "Streamable HTTP").

use std::net::SocketAddr;

use axum::body::Body;
use futures::StreamExt;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use wardgate_mcp::event_stream::EventReader;
use wardgate_mcp::message::{ErrorObject, OutgoingMessage, read_outcome};
use wardgate_mcp::{Version, header, meta};
use wardgate_telemetry::trace_context;

use crate::{EdgeClient, EdgeClientError};

const VERSION: &str = Version::V2026_07_28.as_str();

/// A request before it is encoded.
#[derive(Debug)]
pub struct GatewayRequest<'r> {
    /// The path of the MCP endpoint.
    pub path: &'r str,
    /// The name of the method.
    pub method: &'r str,
    /// The name of the tool, prompt or resource, for the header `Mcp-Name`.
    pub name: Option<&'r str>,
    /// `params`, without `arguments` and `_meta`.
    pub params: Map<String, Value>,
    /// The member `params.arguments`, whose text is sent unchanged.
    pub arguments: Option<&'r RawValue>,
    /// Additional members of `params._meta`.
    pub meta: &'r [(&'r str, &'r str)],
}

/// The caller on whose behalf a request is made.
#[derive(Debug)]
pub struct GatewayCaller {
    /// The name of the client.
    pub client: &'static str,
    /// The value of `Authorization`.
    pub bearer: HeaderValue,
    /// The address of the client on whose behalf the request is made.
    pub peer: Option<SocketAddr>,
}

#[derive(Serialize)]
struct RequestParams<'r> {
    #[serde(flatten)]
    members: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'r RawValue>,
    _meta: Map<String, Value>,
}

/// The response to a request.
#[derive(Debug)]
pub struct GatewayResponse {
    /// The text of the message as it was received.
    pub text: String,
    /// The result or error in the message.
    pub outcome: Result<Box<RawValue>, ErrorObject>,
}

impl GatewayRequest<'_> {
    /// Encodes the request as the protocol requires.
    pub fn encode(
        self,
        edge: &EdgeClient,
        caller: GatewayCaller,
        id: u64,
    ) -> Result<Request<String>, EdgeClientError> {
        let own_meta = [
            (meta::PROTOCOL_VERSION, json!(VERSION)),
            (meta::CLIENT_CAPABILITIES, json!({})),
            (
                meta::CLIENT_INFO,
                json!({ "name": caller.client, "version": env!("CARGO_PKG_VERSION") }),
            ),
        ];
        let others = self.meta.iter().map(|(name, value)| (*name, json!(value)));
        let members = own_meta.into_iter().chain(others);
        let params = RequestParams {
            members: self.params,
            arguments: self.arguments,
            _meta: members
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        };
        let message = OutgoingMessage::new(Some(id), self.method, Some(params));
        let body = serde_json::to_string(&message).map_err(|_| EdgeClientError::Path)?;
        let post = Request::post(edge.uri(self.path)?).body(body);
        let mut post = post.map_err(|_| EdgeClientError::Path)?;
        // The listener sets the same extension for a client with a socket. In a process without a socket, this is the
        // only way to pass the address.
        if let Some(peer) = caller.peer {
            post.extensions_mut().insert(peer);
        }
        let headers = post.headers_mut();
        // A gateway that trusts the address of this client as a proxy reads the header.
        if let Some(peer) = caller.peer.filter(|_| edge.is_remote())
            && let Ok(client) = HeaderValue::from_str(&peer.ip().to_string())
        {
            headers.insert("x-forwarded-for", client);
        }
        trace_context::inject(headers);
        headers.insert(AUTHORIZATION, caller.bearer);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(header::JSON));
        let accepted = HeaderValue::from_static(header::JSON_OR_EVENT_STREAM);
        headers.insert(ACCEPT, accepted);
        headers.insert(header::PROTOCOL_VERSION, HeaderValue::from_static(VERSION));
        headers.insert(header::METHOD, header::encode_value(self.method));
        if let Some(name) = self.name {
            headers.insert(header::NAME, header::encode_value(name));
        }
        Ok(post)
    }
}

impl GatewayResponse {
    /// Reads the response to the request with this id, either as JSON or from an event stream. At most `max_bytes` are
    /// read.
    pub async fn from_response(
        response: Response<Body>,
        id: u64,
        max_bytes: usize,
    ) -> Result<Self, EdgeClientError> {
        let is_stream = header::has_media_type(response.headers(), header::EVENT_STREAM);
        let body = Limited::new(response.into_body(), max_bytes);
        if !is_stream {
            let bytes = body
                .collect()
                .await
                .map_err(|error| body_error(&*error))?
                .to_bytes();
            return Self::parse(bytes.into(), id)?.ok_or(EdgeClientError::Unreadable);
        }
        let mut chunks = body.into_data_stream();
        let mut events = EventReader::new(max_bytes);
        while let Some(chunk) = chunks.next().await {
            let fed = events.feed(&chunk.map_err(|error| body_error(&*error))?);
            fed.map_err(|_| EdgeClientError::TooLarge)?;
            // The messages before the response are notifications.
            while let Some(data) = events.next_event() {
                if let Some(answer) = Self::parse(data, id)? {
                    return Ok(answer);
                }
            }
        }
        Err(EdgeClientError::Unreachable)
    }

    /// Parses the response in `bytes`. Returns `None` if they contain another message.
    fn parse(bytes: Vec<u8>, id: u64) -> Result<Option<Self>, EdgeClientError> {
        let text = String::from_utf8(bytes).map_err(|_| EdgeClientError::Unreadable)?;
        let outcome = read_outcome(&text, id);
        Ok(outcome.map(|outcome| Self { text, outcome }))
    }
}

fn body_error(error: &(dyn std::error::Error + Send + Sync + 'static)) -> EdgeClientError {
    if error.is::<LengthLimitError>() {
        EdgeClientError::TooLarge
    } else {
        EdgeClientError::Unreachable
    }
}
