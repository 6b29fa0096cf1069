//! Load balancing and retries of calls over the replicas of a service.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt, Full};
use metrics::counter;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Status;
use tonic::body::Body;
use tower::retry::budget::{Budget, TpsBudget};
use tower::{Service, ServiceExt};
use wardgate_domain::Ambient;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_telemetry::names;

use super::SILENT;
use super::answer::{self, AttemptOutcome, Pushback};
use super::pool::Pool;
use super::replica::ReplicaCall;
use crate::methods::{self, IdempotentRequest, ResponseKind, RetryPolicy};
use crate::readiness::Readiness;
use crate::status::with_reason;
use crate::{deadline, in_flight};

/// Maximum number of attempts of a call that a server may have received.
const MOST_SENT: u32 = 3;
/// Maximum number of attempts of a call that no server received.
const MOST_TRIED: u32 = 6;
/// Maximum delay before the first retry. It doubles with every further retry.
const BACK_OFF: Duration = Duration::from_millis(20);

/// The transport of a link with load balancing and retries.
#[derive(Debug, Clone)]
pub(super) struct BalancedTransport {
    pool: Arc<Pool>,
    /// Limits retries to a fifth of the calls of the last ten seconds, plus one hundred in ten seconds.
    retry_budget: Arc<TpsBudget>,
    ambient: Ambient,
    /// Keeps the pool running, which ends when all receivers of its readiness are dropped.
    _alive: watch::Receiver<Readiness>,
}

impl BalancedTransport {
    pub(super) fn new(
        pool: Arc<Pool>,
        alive: watch::Receiver<Readiness>,
        ambient: Ambient,
    ) -> Self {
        Self {
            pool,
            retry_budget: Arc::default(),
            ambient,
            _alive: alive,
        }
    }

    async fn send(self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        // A request is a single message that is available without waiting, which a test verifies for every method.
        let message = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(status) => return status.into_http(),
        };
        let deadline = deadline::parse_timeout(&head.headers).map(|left| Instant::now() + left);
        let method = methods::find(head.uri.path());
        let (answer, repeat) = method
            .map_or((ResponseKind::Stream, RetryPolicy::Never), |method| {
                (method.answer, method.repeat)
            });
        let call = RetryableCall {
            repeatable: match repeat {
                RetryPolicy::Always => true,
                RetryPolicy::IfMarked => head.extensions.get::<IdempotentRequest>().is_some(),
                RetryPolicy::Never => false,
            },
            answer,
            head,
            message,
            deadline,
        };
        self.retry_budget.deposit();
        let attempts = self.attempts(&call);
        let answered = match deadline {
            Some(deadline) => timeout_at(deadline, attempts).await,
            None => Ok(attempts.await),
        };
        answered.unwrap_or_else(|_| deadline::late().into_http())
    }

    /// Sends a call whose request is a stream. It is not retried, because its messages cannot be sent again.
    async fn send_stream(self, request: Request<Body>) -> Response<Body> {
        let Some(taken) = self.pool.begin_call(None, None).await else {
            return self.unavailable();
        };
        let channel = taken.channel.clone();
        let mut call = StreamedCall {
            taken,
            has_ended: false,
        };
        let sent = channel.oneshot(request).await;
        let Ok(AttemptOutcome::Answered(response)) = sent.map(answer::classify_response) else {
            call.record_failure();
            return self.unavailable();
        };
        if response.headers().contains_key(Status::GRPC_STATUS) {
            // The response is an error without messages.
            call.taken.record_success();
            call.has_ended = true;
        }
        response.map(|body| Body::new(ResultsBody { body, call }))
    }

    async fn attempts(&self, call: &RetryableCall) -> Response<Body> {
        let (mut tried, mut sent) = (0, 0);
        let mut avoid = None;
        loop {
            let Some(taken) = self.pool.begin_call(avoid, call.deadline).await else {
                return self.unavailable();
            };
            avoid = Some(taken.address());
            tried += 1;
            let patience = call.patience().filter(|_| sent + 1 < MOST_SENT);
            let (pushback, refusal) = match self.attempt(call, taken, patience).await {
                AttemptOutcome::Answered(response) => return response,
                // The transport enforces the deadline too, so any other outcome may be caused by it.
                _ if call.is_late() => return deadline::late().into_http(),
                AttemptOutcome::Unsent if tried < MOST_TRIED => {
                    self.count("unsent");
                    sleep(self.jitter(tried)).await;
                    continue;
                }
                AttemptOutcome::Unsent => return self.unavailable(),
                AttemptOutcome::Silent => {
                    sent += 1;
                    self.count("silent");
                    continue;
                }
                AttemptOutcome::Lost => (Pushback::None, self.unavailable()),
                AttemptOutcome::Unavailable(response) => {
                    (Pushback::from_headers(response.headers()), response)
                }
            };
            sent += 1;
            if !call.repeatable || sent == MOST_SENT {
                return refusal;
            }
            let pause = match pushback {
                Pushback::None => self.jitter(sent),
                Pushback::After(pause) => Duration::from_millis(pause),
                Pushback::Never => {
                    self.count("pushed_back");
                    return refusal;
                }
            };
            if call
                .deadline
                .is_some_and(|deadline| Instant::now() + pause >= deadline)
            {
                return refusal;
            }
            if !self.retry_budget.withdraw() {
                self.count("over_budget");
                return refusal;
            }
            self.count("made");
            sleep(pause).await;
        }
    }

    /// Sends the call to one replica. Gives up after `patience` if another replica could take the call.
    async fn attempt(
        &self,
        call: &RetryableCall,
        mut taken: ReplicaCall,
        patience: Option<Instant>,
    ) -> AttemptOutcome {
        let channel = taken.channel.clone();
        let answering = async {
            match channel.oneshot(call.request()).await {
                Err(error) => answer::classify_error(&error),
                Ok(response) if call.is_whole() => answer::buffer_response(response).await,
                Ok(response) => answer::classify_response(response),
            }
        };
        let mut answering = pin!(answering);
        let within = match patience {
            Some(patience) => timeout_at(patience, &mut answering).await.ok(),
            None => None,
        };
        let outcome = match within {
            Some(outcome) => outcome,
            None if patience.is_some() && self.gives_up(&taken) => AttemptOutcome::Silent,
            None => answering.await,
        };
        match outcome {
            AttemptOutcome::Answered(response) => {
                taken.record_success();
                AttemptOutcome::Answered(call.track_response(response, taken))
            }
            AttemptOutcome::Unavailable(response) => {
                // A server that specifies a time for retries is overloaded, but works.
                if Pushback::from_headers(response.headers()) == Pushback::None {
                    taken.record_failure();
                } else {
                    taken.record_success();
                }
                AttemptOutcome::Unavailable(response)
            }
            failure => {
                taken.record_failure();
                failure
            }
        }
    }

    /// Returns whether a call that this replica has not responded to is sent to another one.
    fn gives_up(&self, taken: &ReplicaCall) -> bool {
        self.pool.has_another(taken.address()) && self.retry_budget.withdraw()
    }

    /// Returns a random delay, so that calls that failed together are not retried together.
    fn jitter(&self, attempt: u32) -> Duration {
        let most = BACK_OFF * 2_u32.pow(attempt - 1);
        most.mul_f64(f64::from(u16::from_be_bytes(self.ambient.random())) / f64::from(u16::MAX))
    }

    fn unavailable(&self) -> Response<Body> {
        let message = format!("{} cannot be reached", self.pool.neighbour());
        with_reason(ErrorReason::Unavailable, &message).into_http()
    }

    fn count(&self, outcome: &'static str) {
        counter!(names::LINK_RETRIES, "neighbour" => self.pool.neighbour(), "outcome" => outcome)
            .increment(1);
    }
}

impl Service<Request<Body>> for BalancedTransport {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = methods::find(request.uri().path());
        if method.is_some_and(|method| method.answer == ResponseKind::Results) {
            let sending = self.clone().send_stream(request);
            return Box::pin(async move { Ok(sending.await) });
        }
        let sending = self.clone().send(request);
        Box::pin(async move { Ok(sending.await) })
    }
}

/// A call whose request is a stream. Its caller drops it before its end only if results are late.
struct StreamedCall {
    taken: ReplicaCall,
    has_ended: bool,
}

impl StreamedCall {
    fn record_failure(&mut self) {
        self.taken.record_failure();
        self.has_ended = true;
    }
}

impl Drop for StreamedCall {
    fn drop(&mut self) {
        if !self.has_ended {
            self.taken.fell_silent();
        }
    }
}

/// A stream of results, each of which shows that the replica works.
struct ResultsBody {
    body: Body,
    call: StreamedCall,
}

impl HttpBody for ResultsBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Self { body, call } = self.get_mut();
        let frame = ready!(Pin::new(body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                call.taken.record_success();
                call.has_ended |= frame.is_trailers();
            }
            Some(Err(_)) => call.record_failure(),
            None => call.has_ended = true,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// A call that may have to be sent more than once.
struct RetryableCall {
    head: Parts,
    message: Bytes,
    answer: ResponseKind,
    repeatable: bool,
    deadline: Option<Instant>,
}

impl RetryableCall {
    /// Creates the request with the time that is left now.
    fn request(&self) -> Request<Body> {
        let mut head = self.head.clone();
        if let Some(deadline) = self.deadline {
            deadline::renew(&mut head.headers, deadline);
        }
        Request::from_parts(head, Body::new(Full::new(self.message.clone())))
    }

    /// Counts the call as load of the replica until the response ended. Watches do not count because they do not end.
    fn track_response(&self, response: Response<Body>, taken: ReplicaCall) -> Response<Body> {
        if in_flight::is_watch(self.head.uri.path()) {
            return response;
        }
        response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _open = &taken;
                frame
            }))
        })
    }

    /// Returns whether the response is a single message that is buffered until it is complete.
    fn is_whole(&self) -> bool {
        self.repeatable && self.answer == ResponseKind::Whole
    }

    /// Returns the time until which a replica may leave the call unanswered: half of the time that is left. Returns
    /// `None` if that is long, because a keep-alive ping detects a lost connection sooner, and a replica that works
    /// on a long call is not interrupted.
    fn patience(&self) -> Option<Instant> {
        let deadline = self.deadline.filter(|_| self.is_whole())?;
        let half = deadline.saturating_duration_since(Instant::now()) / 2;
        (half <= 2 * SILENT).then(|| Instant::now() + half)
    }

    fn is_late(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }
}
