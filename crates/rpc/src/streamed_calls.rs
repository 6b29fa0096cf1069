//! Calls that arrive as the messages of one stream.

use std::time::Duration;

use wardgate_resilience::concurrency::Limiter;
use wardgate_telemetry::trace_context::{self, TraceContext};

use crate::call_error::CallError;
use crate::in_flight::InFlight;
use crate::local;
use crate::methods::Method;
use crate::status::overload_status;

/// The calls of one stream. Each has the steps that the stack performs for a call of its own, after the access check.
#[derive(Debug, Clone)]
pub(crate) struct StreamedCalls {
    pub(crate) method: &'static Method,
    pub(crate) in_flight: InFlight,
    /// The concurrency limiter, or `None` to accept all calls.
    pub(crate) limiter: Option<Limiter>,
}

impl StreamedCalls {
    /// Awaits `work`, which handles one message whose client waits for `limit`. `context` is the span that the call belongs to.
    pub(crate) async fn run<T>(
        &self,
        context: &TraceContext,
        limit: Duration,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let _call = self.in_flight.begin(self.method.path);
        let span = local::span(self.method);
        trace_context::adopt(&span, &context.headers());
        let admitted = async {
            let slot = match &self.limiter {
                Some(limiter) => {
                    let entered = limiter.enter("", "").await;
                    Some(entered.map_err(|refused| CallError::from(overload_status(&refused)))?)
                }
                None => None,
            };
            let answer = work.await?;
            if let Some(slot) = slot {
                slot.end_call(self.method.path);
            }
            Ok(answer)
        };
        let (answer, mut measured) = local::begin(self.method, span, limit, admitted).await?;
        measured.set_outcome(None);
        Ok(answer)
    }
}
