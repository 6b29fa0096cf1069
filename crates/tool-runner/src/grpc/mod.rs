//! Calls any unary or server-streaming method of a gRPC server, JSON in and JSON out.
//!
//! ```text
//!   GrpcServer::call ── Methods: descriptor file ∣ reflection ──▶ json ⇄ DynamicMessage
//!                 │                                                       │ codec
//!                 └──▶ Connection: connected when first used, TLS ◀───────┘
//!                          └──▶ Answers::next: one message after the other
//! ```
//!
//! Dropping the future or the [`Answers`] resets the stream, which the server sees as a cancelled call.

mod channel;
mod codec;
mod descriptors;
mod error;
mod json;
mod metadata;
mod methods;
mod reflection;
mod status;
mod trim;

use std::time::Duration;

use http::{HeaderValue, Uri};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::{Request, Status, Streaming};

pub(crate) use descriptors::{BadDescriptors, decode};
pub(crate) use error::GrpcError;
pub(crate) use json::{Misfit, field, field_names, has_own_form};
pub(crate) use metadata::{BadMetadata, add as add_metadata};
pub(crate) use methods::{MethodName, NotAMethod};

use channel::Connection;
use codec::DynamicCodec;
use json::{NotJson, to_json, to_message};
use methods::{Methods, Reflected};

/// What servers take by default.
const MAX_REQUEST_BYTES: usize = 4 << 20;
const GRPC_STATUS: &str = "grpc-status";
/// For a method that a server did not describe.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// JSON takes so many times the bytes of a message, at most.
const JSON_FACTOR: usize = 4;

/// A configured server.
pub(crate) struct GrpcServer {
    connection: Connection,
    methods: Methods,
    metadata: MetadataMap,
    max_response_bytes: usize,
}

impl GrpcServer {
    /// Connects to nothing yet. Without `descriptors` the server is asked for them when first used.
    pub(crate) fn new(
        url: &Uri,
        ca: Option<&str>,
        descriptors: Option<DescriptorPool>,
        metadata: MetadataMap,
        max_response_bytes: usize,
    ) -> Result<Self, tonic::transport::Error> {
        Ok(Self {
            connection: Connection::new(url, ca)?,
            methods: match descriptors {
                Some(pool) => Methods::Fixed(pool),
                None => Methods::Reflected(Reflected::new(LOOK_AGAIN_AFTER)),
            },
            metadata,
            max_response_bytes,
        })
    }

    /// Sends one message; the answers come one by one until `deadline`.
    pub(crate) async fn call(
        &self,
        name: &MethodName,
        message: &Value,
        authorization: Option<&HeaderValue>,
        deadline: Instant,
    ) -> Result<Answers<'_>, GrpcError> {
        let mut metadata = self.metadata.clone();
        if let Some(authorization) = authorization {
            let mut headers = metadata.into_headers();
            headers.insert(http::header::AUTHORIZATION, authorization.clone());
            metadata = MetadataMap::from_headers(headers);
        }
        let method = self
            .methods
            .find(name, &self.connection, &metadata, deadline)
            .await?;
        let message = to_message(&method.input(), message)?;
        if message.encoded_len() > MAX_REQUEST_BYTES {
            return Err(GrpcError::RequestTooLarge(MAX_REQUEST_BYTES));
        }
        let mut request = Request::new(message);
        *request.metadata_mut() = metadata;
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        let codec = DynamicCodec {
            receives: method.output(),
        };
        let mut client =
            Grpc::new(self.connection.clone()).max_decoding_message_size(self.max_response_bytes);
        let opened = before(deadline, async {
            client.ready().await.map_err(status::unready)?;
            client.server_streaming(request, name.path(), codec).await
        });
        let response = opened.await.map_err(|error| self.failed(name, error))?;
        let settled = response.metadata().contains_key(GRPC_STATUS);
        Ok(Answers {
            server: self,
            name: name.clone(),
            messages: response.into_inner(),
            single: !method.is_server_streaming(),
            ended: false,
            settled,
            deadline,
        })
    }

    /// A server that does not know a method may be another one than the one that described it.
    fn failed(&self, name: &MethodName, error: GrpcError) -> GrpcError {
        if matches!(
            error,
            GrpcError::Status {
                code: "UNIMPLEMENTED",
                ..
            }
        ) {
            self.methods.forget(name);
        }
        error
    }
}

/// What a method answers.
pub(crate) struct Answers<'a> {
    server: &'a GrpcServer,
    name: MethodName,
    messages: Streaming<DynamicMessage>,
    /// Not a stream: exactly one message, and none before the call has ended well.
    single: bool,
    ended: bool,
    /// The headers hold the status already, so no trailers follow.
    settled: bool,
    deadline: Instant,
}

impl Answers<'_> {
    /// The next message as JSON; none after the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, GrpcError> {
        let Some(message) = self.message().await? else {
            return match self.single && !self.ended {
                true => Err(GrpcError::BadAnswer(
                    "the call ended well without a message",
                )),
                false => Ok(None),
            };
        };
        if self.single {
            if self.message().await?.is_some() {
                return Err(GrpcError::BadAnswer("there is more than one message"));
            }
            self.ended = true;
        }
        let limit = self.server.max_response_bytes.saturating_mul(JSON_FACTOR);
        match to_json(&message, limit) {
            Ok(value) => Ok(Some(value)),
            Err(NotJson::TooLarge) => Err(GrpcError::TooLarge),
            Err(NotJson::Invalid) => Err(GrpcError::BadAnswer(
                "a message has no JSON form: a time out of range, an `Any` of a type that is not described, or too many messages in one another",
            )),
        }
    }

    async fn message(&mut self) -> Result<Option<DynamicMessage>, GrpcError> {
        if self.ended {
            return Ok(None);
        }
        let next = before(self.deadline, async {
            let message = self.messages.message().await?;
            let cut = message.is_none() && !self.settled && {
                let trailers = self.messages.trailers().await?;
                !trailers.is_some_and(|trailers| trailers.contains_key(GRPC_STATUS))
            };
            Ok((message, cut))
        });
        let (message, cut) = next
            .await
            .map_err(|error| self.server.failed(&self.name, error))?;
        if cut {
            return Err(GrpcError::Broken(
                "the stream ended without a status".to_owned(),
            ));
        }
        Ok(message)
    }
}

/// Waits for `work` until `deadline`.
async fn before<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, GrpcError> {
    match timeout_at(deadline, work).await {
        Ok(outcome) => outcome.map_err(|status| status::failed(&status)),
        Err(_elapsed) => Err(GrpcError::Timeout),
    }
}

#[cfg(test)]
mod tests;
