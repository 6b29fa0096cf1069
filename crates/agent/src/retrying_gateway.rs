//! Retries requests that the gateway rejects because it is busy, a few times and not past the end of the turn.
//!
//! A gateway that is busy has executed nothing of the request, so a retry is safe even without an idempotency key.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};
use wardgate_domain::AgentRefusal;

use crate::clients::{GatewayClient, GatewayFailure, GatewayFuture, GatewayTool, ToolAnswer};

/// Maximum number of attempts for one request.
const ATTEMPTS: u32 = 3;
/// Longest pause before a retry. If the gateway asks for more, the failure is returned to the model or the user instead.
const LONGEST: Duration = Duration::from_secs(10);

/// A gateway client that retries busy responses.
pub(crate) struct RetryingGateway {
    gateway: Arc<dyn GatewayClient>,
    /// The time by which every pause must end.
    until: Instant,
}

impl RetryingGateway {
    pub(crate) fn new(gateway: Arc<dyn GatewayClient>, until: Instant) -> Self {
        Self { gateway, until }
    }

    async fn send_with_retries<'a, T>(
        &self,
        send: impl Fn() -> GatewayFuture<'a, T>,
    ) -> Result<T, GatewayFailure> {
        for _ in 1..ATTEMPTS {
            let answer = send().await;
            let Some(pause) = answer
                .as_ref()
                .err()
                .and_then(|failure| self.pause(failure))
            else {
                return answer;
            };
            sleep(pause).await;
        }
        send().await
    }

    /// Returns the pause before a retry after `failure`, or `None` if a retry is useless.
    fn pause(&self, failure: &GatewayFailure) -> Option<Duration> {
        let GatewayFailure::Busy { retry_after, .. } = failure else {
            return None;
        };
        retry_after.filter(|pause| *pause <= LONGEST && Instant::now() + *pause < self.until)
    }
}

impl GatewayClient for RetryingGateway {
    fn tools<'a>(&'a self, toolsets: &'a [String]) -> GatewayFuture<'a, Vec<GatewayTool>> {
        self.send_with_retries(move || self.gateway.tools(toolsets))
            .boxed()
    }

    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Map<String, Value>,
        key: &'a str,
        conversation: &'a str,
    ) -> GatewayFuture<'a, ToolAnswer> {
        self.send_with_retries(move || self.gateway.call(tool, arguments, key, conversation))
            .boxed()
    }

    fn record_refused<'a>(
        &'a self,
        tool: &'a str,
        refusal: AgentRefusal,
        key: &'a str,
    ) -> GatewayFuture<'a, ()> {
        self.send_with_retries(move || self.gateway.record_refused(tool, refusal, key))
            .boxed()
    }

    fn memory<'a>(&'a self, method: &'static str, params: Value) -> GatewayFuture<'a, Value> {
        self.send_with_retries(move || self.gateway.memory(method, params.clone()))
            .boxed()
    }
}
