//! A cache of verified and compiled permits, for permits that are used several times.

use std::sync::Arc;

use quick_cache::sync::Cache;
use wardgate_domain::{CallToRun, Caller, Permit, SignedPermit, Timestamp, VerifiedTerms};
use wardgate_redact::Redactor;

use super::{Keys, RunnableTool};
use crate::Error;
use crate::compiled_permit::CompiledPermit;
use crate::row_rule::RowGate;

/// Maximum number of cached permits. Each takes some kilobytes.
const CAPACITY: usize = 4_096;

/// The permits used recently. Only verified permits are cached, and each use checks times, caller, tool and arguments
/// again.
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

    /// Checks that `signed` is a valid permit for `call`. Without a `tool`, the call is for a prompt or resource of a
    /// source.
    pub(crate) fn admit(
        &self,
        signed: SignedPermit,
        call: CallToRun<'_>,
        tool: Option<&RunnableTool>,
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
        tool: Option<&RunnableTool>,
        caller: &Caller,
    ) -> Result<CompiledPermit, Error> {
        let entity = tool.and_then(|tool| tool.tool.result().entity.as_ref());
        let gate = RowGate::new(permit.terms().row_rule.as_ref(), entity, caller)?;
        let policies = gate.as_ref().and_then(RowGate::policies);
        let to_push = policies.filter(|_| self.pushdown).zip(entity);
        let pushed = to_push.and_then(|(policies, entity)| {
            let executor = &tool?.executor;
            executor.push_down(policies, &entity.pushdown)
        });
        let may_withhold = policies.is_some() && !pushed.as_ref().is_some_and(|it| it.is_whole);
        Ok(CompiledPermit {
            verified,
            gate,
            pushed,
            may_withhold,
            redactor: Redactor::new(&self.keys.pseudonyms, caller.tenant()),
        })
    }
}
