//! The errors of upstreams, as far as the permit shows them.

use serde_json::{Value, json};
use tracing::warn;
use wardgate_domain::{ColumnTier, Reason};
use wardgate_mcp_client::UpstreamRpcError;
use wardgate_telemetry::names;

use super::{AdmittedCall, CallEnd, ERROR, EndedRun};
use crate::failure::Failure;

impl AdmittedCall {
    /// Turns the error message of an upstream into a failure, redacted as the permit requires.
    pub(super) fn reported_failure(&self, words: String) -> Failure {
        let shape = self.tool.tool.result();
        let class = shape.class(ERROR);
        let tier = self.permit.tier(class);
        let redactor = &self.compiled.redactor;
        let words = redactor.field(class, tier, shape.forms(), words.into());
        warn!({ names::CALL_ID } = %self.id, "a tool reported an error");
        match words {
            Some(Value::String(words)) => Failure::new(Reason::TOOL_ERROR, words),
            _ => Failure::tool(
                Reason::TOOL_ERROR,
                "the tool reported an error; its text is withheld",
            ),
        }
    }

    /// Turns the JSON-RPC error of an upstream into a failure, redacted as the permit requires.
    pub(super) fn protocol_error(self, error: UpstreamRpcError) -> EndedRun {
        let released = self.released_error(&error);
        let phi = self.tool.tool.result().class(ERROR).is_phi();
        let failure = self.reported_failure(error.message);
        let mut ended = self.fail_without_rows(&failure);
        if let CallEnd::Result(result) = &mut ended.end {
            result.error = released.into();
            result.facts.phi = phi;
        }
        ended
    }

    /// Returns the JSON-RPC error of a call or a task as the permit allows it: unchanged if the permit restricts
    /// nothing or shows errors, otherwise the code with the message redacted.
    pub(super) fn released_error(&self, error: &UpstreamRpcError) -> String {
        let class = self.tool.tool.result().class(ERROR);
        let tier = self.permit.tier(class);
        let classes = &self.tool.tool.facts().classes;
        if tier == ColumnTier::Clear || !self.compiled.restricts(&self.permit, classes) {
            return error.for_clients();
        }
        let words = Value::from(error.message.as_str());
        let forms = self.tool.tool.result().forms();
        let words = self.compiled.redactor.field(class, tier, forms, words);
        let words = words.filter(Value::is_string);
        let released = json!({
            "code": error.code_for_clients(),
            "message": words.unwrap_or_else(|| "the tool reported an error; its text is withheld".into()),
        });
        released.to_string()
    }
}
