//! Results that were too large for a response, stored for a limited time for the caller who received them.
//!
//! ```text
//!   store: every admitted row, before redaction, sealed ─▶ a handle
//!   read:  handle ─▶ same caller, policies and definition? ─▶ row rule again ─▶ redact ─▶ rows
//! ```
//!
//! A handle is useless to other callers, and becomes invalid when the policies, the tool or the caller's claims change.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use wardgate_catalogue::Tool;
use wardgate_domain::{Caller, Digest, PermitTerms, Timestamp};
use wardgate_redact::{Redacted, RedactionCounts, Redactor, Row};

use crate::executor_error::ExecutorError;
use crate::row_rule::{RowGate, RowVerdict};
use crate::store::stored_results::NewStoredResult;
use crate::store::{StoreError, ToolRunnerStore};
use crate::wire;

/// Number of rows that are sealed and read together.
const CHUNK: usize = 500;

/// Stores `rows` for the caller of `terms` until `expires_at`, and returns the handle.
pub(crate) async fn store_rows<'r>(
    store: &ToolRunnerStore,
    caller: &Caller,
    terms: &PermitTerms,
    rows: impl Iterator<Item = &'r Row>,
    expires_at: Timestamp,
) -> Result<String, StoreError> {
    let rows: Vec<_> = rows.collect();
    // Serialization cannot fail because all keys of a row are strings.
    let seal = |rows: &[&Row]| serde_json::to_vec(rows).unwrap_or_default();
    let chunks: Vec<_> = rows.chunks(CHUNK).map(seal).collect();
    store
        .store_result(&NewStoredResult {
            caller,
            tool: terms.tool.as_str(),
            definition: terms.definition_digest,
            policy_hash: terms.policy_hash,
            terms: &wire::encode_permit_terms(terms),
            chunks: &chunks,
            expires_at,
        })
        .await
}

/// Access to the stored results of a call's caller.
#[derive(Clone, Copy)]
pub(crate) struct LargeResults<'a> {
    pub(crate) store: &'a ToolRunnerStore,
    /// The tools in force, by name.
    pub(crate) tools: &'a HashMap<String, Arc<Tool>>,
    pub(crate) redactor: &'a Redactor,
    /// The policies in force for the call that reads the result.
    pub(crate) policy_hash: Digest,
    pub(crate) now: Timestamp,
}

impl LargeResults<'_> {
    /// Returns the rows under `handle`, as far as the terms of the original call allow.
    pub(crate) async fn read_rows(
        &self,
        handle: &str,
        caller: &Caller,
    ) -> Result<(Redacted<Vec<Row>>, RedactionCounts), ExecutorError> {
        let stored = self.store.stored_result(handle, caller, self.now).await;
        let stored = stored
            .map_err(|error| store_failure(&error))?
            .ok_or_else(unknown_handle_error)?;
        let terms = wire::decode_permit_terms(&stored.terms).ok_or_else(outdated_result_error)?;
        let tool = self
            .tools
            .get(&stored.tool)
            .ok_or_else(outdated_result_error)?;
        let is_as_it_was = stored.policy_hash == self.policy_hash
            && stored.definition == tool.facts().definition_digest
            && terms.caller_digest == caller.digest();
        if !is_as_it_was {
            return Err(outdated_result_error());
        }
        let entity = tool.result().entity.as_ref();
        let gate = RowGate::new(terms.row_rule.as_ref(), entity, caller)
            .map_err(|_| outdated_result_error())?;
        let mut rows = Vec::new();
        let mut names = HashMap::new();
        for position in 0..stored.chunks {
            let chunk = self.store.stored_chunk(&stored, position).await;
            let chunk = chunk
                .map_err(|error| store_failure(&error))?
                .ok_or_else(unknown_handle_error)?;
            let found: Vec<Map<String, Value>> =
                serde_json::from_slice(&chunk).map_err(|_| outdated_result_error())?;
            let found = found.into_iter().map(|members| row(members, &mut names));
            rows.extend(found.filter(|row| {
                gate.as_ref()
                    .is_none_or(|gate| matches!(gate.verdict(row), RowVerdict::Admitted))
            }));
        }
        Ok(self.redact(tool, &terms, rows))
    }

    fn redact(
        &self,
        tool: &Tool,
        terms: &PermitTerms,
        rows: Vec<Row>,
    ) -> (Redacted<Vec<Row>>, RedactionCounts) {
        let rows = rows
            .into_iter()
            .map(|row| tool.result().without_internal(row));
        self.redactor.rows(rows, tool.result().forms(), |column| {
            let class = tool.result().class(column);
            (class, terms.tier(class))
        })
    }
}

/// Converts a row, and shares the names of its columns with other rows.
fn row(members: Map<String, Value>, names: &mut HashMap<String, Arc<str>>) -> Row {
    members
        .into_iter()
        .map(|(name, value)| {
            let shared = names
                .entry(name)
                .or_insert_with_key(|name| Arc::from(name.as_str()));
            (Arc::clone(shared), value)
        })
        .collect()
}

fn unknown_handle_error() -> ExecutorError {
    ExecutorError::BadArgument {
        text: "`handle` does not name a stored result of this caller; call the tool again"
            .to_owned(),
    }
}

fn outdated_result_error() -> ExecutorError {
    ExecutorError::BadArgument {
        text: "`handle` names a result that was stored before the rules, the tool or your rights changed; call the tool again"
            .to_owned(),
    }
}

fn store_failure(error: &StoreError) -> ExecutorError {
    ExecutorError::Unreachable(error.to_string())
}
