//! What was once worked out for a signed permit, kept for when the same permit comes again.

use std::sync::Arc;

use quick_cache::sync::Cache;
use wardgate_domain::{CallToRun, Caller, Permit, SignedPermit, Timestamp, VerifiedTerms};
use wardgate_redact::Redactor;

use crate::Error;
use crate::catalogue::{Statement, Tool};
use crate::loaded::Keys;
use crate::pushdown::{self, Condition};
use crate::row_rule::RowGate;
use crate::sql::Bound;

/// Permits kept; each is some kilobytes.
const CAPACITY: usize = 4_096;

/// A verified permit, compiled for its tool.
pub(crate) struct CompiledPermit {
    verified: VerifiedTerms,
    /// `None` where rows are not governed.
    pub(crate) gate: Option<RowGate>,
    /// The statement with the row rule pushed down.
    pub(crate) sql: Arc<str>,
    /// Values for its placeholders behind those of the arguments.
    pub(crate) rule_values: Vec<Bound>,
    pub(crate) redactor: Redactor,
}

/// The permits seen lately. Only verified ones are kept, and each use checks times, caller, tool and
/// arguments anew.
pub(crate) struct CompiledPermits {
    keys: Keys,
    pushdown: bool,
    seen: Cache<SignedPermit, Arc<CompiledPermit>>,
}

impl CompiledPermits {
    pub(crate) fn new(keys: &Keys, pushdown: bool) -> Self {
        Self {
            keys: keys.clone(),
            pushdown,
            seen: Cache::new(CAPACITY),
        }
    }

    /// The permit for `call` of `tool`, if `signed` is one.
    pub(crate) fn admit(
        &self,
        signed: SignedPermit,
        call: CallToRun<'_>,
        tool: &Tool,
        now: Timestamp,
    ) -> Result<(Permit, Arc<CompiledPermit>), Error> {
        if let Some(compiled) = self.seen.get(&signed) {
            let permit = compiled.verified.admit(call, now)?;
            return Ok((permit, compiled));
        }
        let verified = self.keys.permits.verify(&signed)?;
        let permit = verified.admit(call, now)?;
        let compiled = Arc::new(self.compile(verified, &permit, tool, call.caller)?);
        self.seen.insert(signed, Arc::clone(&compiled));
        Ok((permit, compiled))
    }

    fn compile(
        &self,
        verified: VerifiedTerms,
        permit: &Permit,
        tool: &Tool,
        caller: &Caller,
    ) -> Result<CompiledPermit, Error> {
        let entity = tool.result().entity.as_ref();
        let gate = RowGate::new(permit.terms().row_rule.as_ref(), entity, caller)?;
        let policies = gate
            .as_ref()
            .filter(|_| self.pushdown)
            .and_then(RowGate::policies);
        let statement = tool.statement();
        let condition = policies
            .zip(entity)
            .filter(|_| statement.has_row_rule())
            .map(|(policies, entity)| {
                let taken = statement.params().len();
                pushdown::condition(policies, &entity.pushdown, statement.dialect(), taken)
            });
        let (sql, rule_values) = rendered(statement, condition);
        Ok(CompiledPermit {
            verified,
            gate,
            sql,
            rule_values,
            redactor: Redactor::new(&self.keys.pseudonyms, caller.tenant()),
        })
    }
}

fn rendered(statement: &Statement, condition: Option<Condition>) -> (Arc<str>, Vec<Bound>) {
    match condition {
        Some(Condition { sql, values }) => (statement.render(Some(&sql)), values),
        None => (statement.render(None), Vec::new()),
    }
}
