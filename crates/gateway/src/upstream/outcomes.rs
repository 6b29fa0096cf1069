//! The outcomes of upstream requests: recorded first, then sent to the client.

use axum::response::Response;
use serde_json::value::RawValue;
use wardgate_domain::{CallFacts, Digest, Outcome, Status};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{CallError, RelayFailure, ResultFacts};
use wardgate_telemetry::names;

use super::NotForwarded;
use super::exchange::UpstreamExchange;
use super::right::{AccessError, AccessRight};
use super::upstream_request::RequestSubject;
use crate::audit_log::RecordStatus;
use crate::call_meta::{call_meta, write_dropped};
use crate::call_tool::RATE_LIMITED;
use crate::client_interaction::ResponseSender;
use crate::edit::MetaInsertion;
use crate::measures;
use crate::reply::Answer;
use crate::rpc_error::RpcError;

impl UpstreamExchange {
    pub(super) fn facts_for_record(&self, right: Option<&AccessRight>) -> Option<Box<CallFacts>> {
        let (requested, arguments) = match (&self.upstream_request.subject, right) {
            (RequestSubject::Tool { name, arguments }, _) => (name.as_str(), arguments.clone()),
            // Nobody knows what it does.
            (RequestSubject::Foreign, Some(right)) => ("", right.arguments.clone()),
            (RequestSubject::Task { tool }, Some(right)) => {
                (tool.as_str(), right.arguments.clone())
            }
            (RequestSubject::Prompt { name, .. }, Some(right)) => {
                (name.as_str(), right.arguments.clone())
            }
            // A URI can hold anything a person typed.
            (_, Some(right)) if right.recorded => ("", right.arguments.clone()),
            _ => return None,
        };
        let (id, caller, ip) = (
            self.call_id,
            &self.route_request.caller,
            self.route_request.client_ip.clone(),
        );
        let protocol = self.upstream_request.spoken().as_str();
        let mut facts = if requested.is_empty() {
            CallFacts::without_tool(id, caller, ip, protocol, &arguments)
        } else {
            CallFacts::arriving(id, caller, ip, protocol, requested, &arguments)
        };
        if !matches!(self.upstream_request.subject, RequestSubject::Tool { .. }) {
            let method = self.upstream_request.method.as_str();
            let is_name = method.len() <= MAX_METHOD
                && method
                    .bytes()
                    .all(|it| it.is_ascii_alphanumeric() || b"/_-.$".contains(&it));
            // A client can write anything there.
            facts = facts.by_method(if is_name { method } else { NO_METHOD });
        }
        let of_task = match &self.upstream_request.subject {
            RequestSubject::Task { tool } => {
                let (gateway, route_request) = (&self.gateway, &self.route_request);
                AccessRight::for_tool(gateway, &self.source, route_request, tool, arguments)
            }
            _ => None,
        };
        if let Some(right) = of_task.as_ref().or(right) {
            facts.tool = Some(right.facts.name.clone());
            facts.definition_digest = Some(right.facts.definition_digest);
            tracing::Span::current().record(names::TOOL, right.facts.name.as_str());
        }
        Some(Box::new(facts))
    }

    /// Records and sends the error of a request that the tool-runner did not forward.
    pub(super) async fn relay_failed(&mut self, error: &CallError) {
        tracing::warn!(%error, "the tool-runner did not forward a request to an upstream");
        let (status, reason, error) = match error.reason() {
            ErrorReason::InvalidMessage => {
                let error = RpcError::invalid_request(error.to_string());
                (Status::InvalidArguments, "invalid_request", error)
            }
            ErrorReason::Denied => {
                let error = RpcError::invalid_params(error.to_string()).because("denied");
                (Status::Denied, "denied", error)
            }
            ErrorReason::UnknownTool => (Status::UnknownTool, "unknown_tool", self.not_there()),
            ErrorReason::Overloaded => {
                let error = self.gateway.neighbour_overloaded();
                (Status::Error, error.reason(), error)
            }
            _ => {
                let kind = "tool_runner_unavailable";
                (Status::Error, kind, RpcError::internal(kind, UNREACHED))
            }
        };
        self.close(status, reason, error).await;
    }

    /// Records the outcome, and only then releases the message.
    pub(super) async fn release(
        &self,
        unrecorded: CallFacts,
        mut message: String,
        result: Option<&ResultFacts>,
    ) -> Result<String, RpcError> {
        let insertion = MetaInsertion::find(&message);
        let (status, reason) = match result {
            _ if insertion.is_err() => (Status::Error, "bad_result"),
            Some(facts) => (facts.status, facts.error_kind.as_str()),
            // An error that does not say to which request.
            None => (Status::Error, "upstream_error"),
        };
        let outcome = Outcome {
            rows: result.map_or(0, |facts| facts.rows),
            rows_withheld: result.map_or(0, |facts| facts.rows_withheld),
            fields_redacted: result.map_or(0, |facts| facts.fields_redacted),
            phi: result.is_some_and(|facts| facts.phi),
            result_digest: Some(Digest::of(message.as_bytes())),
            ..self.without_result(unrecorded, status, reason)
        };
        let recorded = self.record(outcome, true).await?;
        let insertion = insertion.map_err(|_| {
            RpcError::internal("bad_result", CUT).of_call(self.call_id, recorded.receipt())
        })?;
        let mut meta = call_meta(self.call_id, recorded);
        write_dropped(
            &mut meta,
            result
                .map(|facts| facts.dropped_columns)
                .unwrap_or_default(),
        );
        insertion.put(&mut message, &meta);
        Ok(message)
    }

    async fn record(&self, outcome: Outcome, has_intent: bool) -> Result<RecordStatus, RpcError> {
        // Its source is named only where the caller has a right to it.
        measures::ended(&outcome, false);
        tracing::info!(
            status = outcome.status.as_str(),
            reason = outcome.reason,
            "a request to an upstream ended"
        );
        let recorded = self.gateway.record_outcome(outcome, has_intent).await;
        recorded.map_err(|_| {
            RpcError::internal("not_durable", POSSIBLY_RAN).of_call(self.call_id, None)
        })
    }

    /// Nothing more comes. What is on record by now stays as it is.
    pub(super) async fn ended(&mut self, status: Status, reason: &'static str) {
        if let Some(unrecorded) = self.unrecorded.take() {
            // The client is not told either way.
            let outcome = self.without_result(*unrecorded, status, reason);
            let _ = self.record(outcome, true).await;
        }
    }

    fn without_result(&self, unrecorded: CallFacts, status: Status, reason: &str) -> Outcome {
        Outcome {
            call: unrecorded,
            status,
            reason: reason.to_owned(),
            rows: 0,
            rows_withheld: 0,
            fields_redacted: 0,
            phi: false,
            result_digest: None,
            duration: self.started.elapsed(),
        }
    }

    /// The upstream did not answer.
    pub(super) async fn failure(&mut self, failure: &RelayFailure) {
        self.not_forwarded = failure.uncarried;
        let facts = &failure.facts;
        let error = match facts.retry_after {
            Some(wait) if facts.error_kind == RATE_LIMITED => RpcError::rate_limited(wait),
            _ => RpcError::internal("upstream_failed", failure.text.clone()),
        };
        self.close(facts.status, &facts.error_kind, error).await;
    }

    pub(super) async fn failed(
        &mut self,
        status: Status,
        kind: &'static str,
        message: &'static str,
    ) {
        let error = RpcError::internal(kind, message);
        self.close(status, kind, error).await;
    }

    /// Records how it ended, and tells the client.
    pub(super) async fn close(&mut self, status: Status, reason: &str, error: RpcError) {
        self.end_call(status, reason, error, true).await;
    }

    /// The same of a call that was refused before its intent was on record.
    pub(super) async fn refuse_call(&mut self, status: Status, reason: &str, error: RpcError) {
        self.end_call(status, reason, error, false).await;
    }

    async fn end_call(
        &mut self,
        status: Status,
        reason: &str,
        mut error: RpcError,
        has_intent: bool,
    ) {
        if let Some(unrecorded) = self.unrecorded.take() {
            let outcome = self.without_result(*unrecorded, status, reason);
            error = match self.record(outcome, has_intent).await {
                Ok(recorded) => error.of_call(self.call_id, recorded.receipt()),
                Err(error) => error,
            };
        }
        self.say_error(&error).await;
    }

    /// Says what went wrong to whoever still waits for an answer. On a stream that is nobody once the answer came, nor
    /// where none was ever to come.
    async fn say_error(&mut self, error: &RpcError) {
        let id = match (&self.out, self.awaited.take()) {
            (ResponseSender::Streaming(_), None) => return,
            (ResponseSender::Streaming(_), Some(awaited)) => RawValue::from_string(awaited.id).ok(),
            (ResponseSender::Unsent(_) | ResponseSender::Closed, _) => {
                self.upstream_request.id.clone()
            }
        };
        let answer = Answer::error(id.as_deref(), error);
        if self.not_forwarded && matches!(self.out, ResponseSender::Unsent(_)) {
            // Whoever answers instead takes a place of its own.
            self.slot = None;
            let mut response = Response::from(answer);
            response.extensions_mut().insert(NotForwarded);
            return self.out.send_response(response);
        }
        self.out.send_answer(answer).await;
    }

    pub(super) async fn denied(&mut self, access_error: AccessError) {
        let (decision, reason, visible) = match access_error {
            AccessError::Denied {
                decision,
                reason,
                visible,
            } => (decision, reason, visible),
            AccessError::Gone => {
                let error = self.not_there();
                return self
                    .refuse_call(Status::UnknownTool, "unknown_tool", error)
                    .await;
            }
            AccessError::Undecided(error) => {
                return self.refuse_call(Status::Error, error.reason(), error).await;
            }
        };
        let is_tool = matches!(self.upstream_request.subject, RequestSubject::Tool { .. });
        let (true, Some(id)) = (visible && is_tool, self.upstream_request.id.clone()) else {
            let error = self.not_there();
            return self
                .refuse_call(Status::Denied, reason.as_str(), error)
                .await;
        };
        let Some(unrecorded) = self.unrecorded.take() else {
            return;
        };
        let outcome = self.without_result(*unrecorded, Status::Denied, reason.as_str());
        let version = self.upstream_request.spoken();
        let answer = match self.record(outcome, false).await {
            Ok(recorded) => {
                let denial = (reason.as_str(), decision.id);
                Answer::denied(&id, version, self.call_id, recorded, denial)
            }
            Err(error) => Answer::error(Some(&id), &error),
        };
        self.out.send_answer(answer).await;
    }

    /// What may not be known of is answered like what there is not.
    pub(super) fn not_there(&self) -> RpcError {
        if self.upstream_request.resumes.is_some() {
            return RpcError::unknown_route();
        }
        let version = self.upstream_request.spoken();
        match &self.upstream_request.subject {
            RequestSubject::Tool { name, .. } => RpcError::unknown_tool(name),
            RequestSubject::Resource { uri } => RpcError::unknown_resource(version).about(uri),
            RequestSubject::Prompt { .. } => {
                RpcError::invalid_params("Unknown prompt").of_unknown()
            }
            RequestSubject::Task { .. } => {
                RpcError::invalid_params("unknown `taskId`").of_unknown()
            }
            RequestSubject::List(_)
            | RequestSubject::Listen { .. }
            | RequestSubject::Route
            | RequestSubject::Foreign => RpcError::unknown_route(),
        }
    }

    /// Refuses what never became a call.
    pub(super) async fn refuse(&mut self, error: &RpcError) {
        let answer = Answer::error(None, error);
        let (gateway, route_request) = (&self.gateway, &self.route_request);
        gateway.count(&answer, &route_request.client_ip, &route_request.caller);
        self.say_error(error).await;
    }

    pub(super) async fn not_recorded(&mut self) {
        let error = RpcError::internal("not_durable", NOT_RELEASED).of_call(self.call_id, None);
        self.say_error(&error).await;
    }
}

/// Stands on the record for what is no name of a method.
const NO_METHOD: &str = "(not a method name)";

/// The longest name of a method that is on the record, in bytes.
const MAX_METHOD: usize = 64;

const NOT_RELEASED: &str =
    "The call cannot be recorded durably, so nothing is released. Try again later.";
const POSSIBLY_RAN: &str = "The call cannot be recorded durably, so its result is not released. It may have run; check before you repeat it.";
const UNREACHED: &str = "The upstream could not be asked. Try again later.";
pub(super) const CUT: &str = "What the upstream answered cannot be passed on.";
