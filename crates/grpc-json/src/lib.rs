//! A client that calls any unary or server-streaming method of a gRPC server, with JSON input and output.
//!
//! ```text
//!   GrpcServer::call ── MethodTable: descriptor file ∣ reflection ──▶ json ⇄ DynamicMessage
//!                 │                                                       │ codec
//!                 └──▶ GrpcChannel: connected on first use, TLS ◀──────────┘
//!                          └──▶ ResponseMessages::next: one message after the other
//! ```
//!
//! Dropping the future or the [`ResponseMessages`] resets the stream, which the server sees as a cancelled call.

mod bad_descriptors;
mod channel;
mod codec;
mod descriptors;
mod error;
mod json;
mod json_mismatch;
mod metadata;
mod methods;
mod proxy;
mod reflection;
mod settings;
mod status;
mod trim;

use std::time::Duration;

use http::HeaderValue;
use http::header::AUTHORIZATION;
use prost::Message;
use prost_reflect::DynamicMessage;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Status, Streaming};
use wardgate_domain::Ambient;
use wardgate_telemetry::trace_context;

use wardgate_egress::{AddressGuard, Auth, EgressError, OnBehalf};

pub use descriptors::DescriptorFile;
pub use error::GrpcError;
pub use json_mismatch::{field, field_names, has_own_form};
pub use metadata::add_metadata;
pub use methods::MethodName;
pub use settings::GrpcSettings;

use channel::GrpcChannel;
use codec::DynamicCodec;
use json::{NotJson, to_json, to_message};
use methods::{MethodTable, ReflectedServices};

/// Maximum size of a request, in bytes, which is the default limit of servers.
const MAX_REQUEST_BYTES: usize = 4 << 20;
const GRPC_STATUS: &str = "grpc-status";
/// Interval after which a method that the server did not describe is looked up again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Maximum size of the JSON form of a message, as a multiple of the maximum size of a response.
const JSON_FACTOR: usize = 4;

/// A configured gRPC server.
pub struct GrpcServer {
    connection: GrpcChannel,
    methods: MethodTable,
    metadata: MetadataMap,
    auth: Auth,
    max_response_bytes: usize,
}

impl GrpcServer {
    /// Creates a client that connects on first use. Without a descriptor file, it asks the server for descriptors then.
    pub fn open(settings: &GrpcSettings, ambient: &Ambient) -> Result<Self, GrpcError> {
        let GrpcSettings {
            url,
            descriptors,
            metadata,
            auth,
            egress,
        } = settings;
        let guard = AddressGuard::new(egress.hosts.clone(), egress.private.clone());
        Ok(Self {
            connection: GrpcChannel::new(url, guard, &egress.network)
                .map_err(|error| GrpcError::Setup(status::innermost(&error)))?,
            methods: match descriptors {
                Some(descriptors) => MethodTable::Fixed(descriptors.pool().clone()),
                None => MethodTable::Reflected(ReflectedServices::new(LOOK_AGAIN_AFTER)),
            },
            metadata: MetadataMap::from_headers(metadata.clone()),
            auth: Auth::open(auth, egress, ambient)
                .map_err(|error| GrpcError::Setup(error.to_string()))?,
            max_response_bytes: egress.max_response_bytes,
        })
    }

    /// Sends one message for `caller`, whose token is used only in a token exchange. The responses arrive one by one
    /// until `deadline`. If the server does not accept an access token that was requested before, the method did not
    /// run, and the call is repeated once with a new token.
    pub async fn call(
        &self,
        name: &MethodName,
        message: &Value,
        caller: Option<OnBehalf<'_>>,
        deadline: Instant,
    ) -> Result<ResponseMessages<'_>, GrpcError> {
        let authorization = self.authorization(caller, None).await?;
        let first = self
            .call_as(name, message, authorization.as_ref(), deadline)
            .await;
        match first {
            Err(GrpcError::Status {
                code: Code::Unauthenticated,
                ..
            }) if self.auth.renews() => {
                let renewed = self.authorization(caller, authorization.as_ref()).await?;
                self.call_as(name, message, renewed.as_ref(), deadline)
                    .await
            }
            outcome => outcome,
        }
    }

    async fn authorization(
        &self,
        caller: Option<OnBehalf<'_>>,
        rejected: Option<&HeaderValue>,
    ) -> Result<Option<HeaderValue>, EgressError> {
        Ok(self.auth.authorization(caller, rejected).await?)
    }

    async fn call_as(
        &self,
        name: &MethodName,
        message: &Value,
        authorization: Option<&HeaderValue>,
        deadline: Instant,
    ) -> Result<ResponseMessages<'_>, GrpcError> {
        let mut headers = self.metadata.clone().into_headers();
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        trace_context::inject(&mut headers);
        let metadata = MetadataMap::from_headers(headers);
        let found = self
            .methods
            .find(name, &self.connection, &metadata, deadline);
        let method = found.await?;
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
        let response = opened
            .await
            .map_err(|error| self.handle_failure(name, error))?;
        let settled = response.metadata().contains_key(GRPC_STATUS);
        Ok(ResponseMessages {
            server: self,
            name: name.clone(),
            messages: response.into_inner(),
            single: !method.is_server_streaming(),
            ended: false,
            settled,
            deadline,
        })
    }

    /// Handles a failed call. A server that does not know a method may be another version than the one that described
    /// it, so the description is discarded.
    fn handle_failure(&self, name: &MethodName, error: GrpcError) -> GrpcError {
        if matches!(
            error,
            GrpcError::Status {
                code: Code::Unimplemented,
                ..
            }
        ) {
            self.methods.forget(name);
        }
        error
    }
}

/// The response messages of a call.
pub struct ResponseMessages<'a> {
    server: &'a GrpcServer,
    name: MethodName,
    messages: Streaming<DynamicMessage>,
    /// Whether the method is unary, so that there is exactly one message, which is returned only after the call has succeeded.
    single: bool,
    /// Whether there are no more messages.
    ended: bool,
    /// Whether the headers contain the status, so that no trailers follow.
    settled: bool,
    deadline: Instant,
}

impl ResponseMessages<'_> {
    /// Returns the next message as JSON, or `None` after the last message.
    pub async fn next(&mut self) -> Result<Option<Value>, GrpcError> {
        if self.ended {
            return Ok(None);
        }
        let message = self.message().await?;
        self.ended = self.single || message.is_none();
        let Some(message) = message else {
            return if self.single {
                let problem = "the call completed without a message";
                Err(GrpcError::BadAnswer(problem))
            } else {
                Ok(None)
            };
        };
        if self.single && self.message().await?.is_some() {
            return Err(GrpcError::BadAnswer(
                "the call returned more than one message",
            ));
        }
        let limit = self.server.max_response_bytes.saturating_mul(JSON_FACTOR);
        match to_json(&message, limit) {
            Ok(value) => Ok(Some(value)),
            Err(NotJson::TooLarge) => Err(GrpcError::TooLarge),
            Err(NotJson::Invalid) => Err(GrpcError::BadAnswer(
                "a message has no JSON form: a time out of range, an `Any` of a type that is not described, or messages nested too deeply",
            )),
        }
    }

    async fn message(&mut self) -> Result<Option<DynamicMessage>, GrpcError> {
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
            .map_err(|error| self.server.handle_failure(&self.name, error))?;
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
        Ok(outcome) => outcome.map_err(|status| match status::to_grpc_error(&status) {
            // The server receives the deadline, and may report before the timer of this process that it has passed.
            GrpcError::ServerTimeout if Instant::now() >= deadline => GrpcError::Timeout,
            error => error,
        }),
        Err(_elapsed) => Err(GrpcError::Timeout),
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
