//! What was once worked out for a signed permit, kept for when the same permit comes again.

use std::sync::Arc;

use quick_cache::sync::Cache;
use wardgate_domain::{
    CallToRun, Caller, ColumnClass, ColumnTier, Permit, SignedPermit, Timestamp, VerifiedTerms,
};
use wardgate_redact::Redactor;

use crate::Error;
use crate::executor::PushedCondition;
use crate::loaded::{Keys, RunnableTool};
use crate::row_rule::RowGate;

/// Permits kept; each is some kilobytes.
const CAPACITY: usize = 4_096;

/// A verified permit, compiled for its tool, or for what a source offers besides tools.
pub(crate) struct CompiledPermit {
    verified: VerifiedTerms,
    /// `None` where rows are not governed.
    pub(crate) gate: Option<RowGate>,
    /// The rule in the terms of the source, where it can leave rows out itself.
    pub(crate) pushed: Option<PushedCondition>,
    pub(crate) redactor: Redactor,
}

impl CompiledPermit {
    /// Whether anything of what can come is not to be seen as it is. Then nothing goes on that no rule of the permit is
    /// about: no words besides the result, and no question. `carried` are the classes that can come.
    pub(crate) fn restricts(&self, permit: &Permit, carried: &[ColumnClass]) -> bool {
        let has_rule = self.gate.as_ref().and_then(RowGate::policies).is_some();
        let is_hidden = |class| permit.tier(class) != ColumnTier::Clear;
        has_rule || carried.iter().any(is_hidden)
    }
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

    /// The permit for `call`, if `signed` is one. Without a `tool` the call is of something else that a source offers.
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
        let policies = gate
            .as_ref()
            .filter(|_| self.pushdown)
            .and_then(RowGate::policies);
        let pushed = policies.zip(entity).and_then(|(policies, entity)| {
            let executor = &tool?.executor;
            executor.push_down(policies, &entity.pushdown)
        });
        Ok(CompiledPermit {
            verified,
            gate,
            pushed,
            redactor: Redactor::new(&self.keys.pseudonyms, caller.tenant()),
        })
    }
}
