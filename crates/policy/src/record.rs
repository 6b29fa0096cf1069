//! May the caller read the record of what everybody did, or of what they did themselves, or decide what becomes of it? May
//! they revoke tokens?

use cedar_policy::{Entity, EntityUid};
use wardgate_domain::RecordScope;

use crate::access_question::AccessQuestion;
use crate::call::CallAnswer;
use crate::fault::DecisionFault;
use crate::set::PolicySet;
use crate::vocabulary::uid;

/// There is one record.
const RECORD: &str = "record";

/// The questions, for faults.
const REVOCATION: &str = "the question whether tokens may be revoked";
const WHAT: &str = "the question whether the record may be read or managed";

impl PolicySet {
    /// Decides for `caller`, an entity that knows its roles.
    pub(crate) fn record(
        &self,
        caller: Entity,
        scope: RecordScope,
    ) -> Result<CallAnswer, DecisionFault> {
        let vocabulary = &self.vocabulary;
        let (action, policies) = match scope {
            RecordScope::All => (&vocabulary.read_record, &self.read_record),
            RecordScope::Own => (&vocabulary.read_own_record, &self.read_own_record),
            RecordScope::Manage => (&vocabulary.manage_record, &self.manage_record),
        };
        self.decide_about_record(caller, (action, policies), WHAT)
    }

    /// Decides whether `caller`, an entity that knows its roles, may revoke tokens, subjects and sign-ins.
    pub(crate) fn revocation(&self, caller: Entity) -> Result<CallAnswer, DecisionFault> {
        let question = (&self.vocabulary.revoke_access, &self.revoke_access);
        self.decide_about_record(caller, question, REVOCATION)
    }

    fn decide_about_record(
        &self,
        caller: Entity,
        (action, policies): (&EntityUid, &cedar_policy::PolicySet),
        what: &'static str,
    ) -> Result<CallAnswer, DecisionFault> {
        let record = Entity::new(uid(&self.vocabulary.audit, RECORD), [].into(), [].into());
        let access_question = AccessQuestion {
            action,
            resource: record.map_err(|_| DecisionFault::Refused(what))?,
            policies,
            what,
        };
        self.decide_reading(caller, access_question)
    }
}
