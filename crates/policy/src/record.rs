//! May the caller read the record of what everybody did, or of what they did themselves, or decide what becomes of it?

use cedar_policy::Entity;
use wardgate_domain::RecordScope;

use crate::access_question::AccessQuestion;
use crate::call::CallAnswer;
use crate::fault::DecisionFault;
use crate::set::PolicySet;
use crate::vocabulary::uid;

/// There is one record.
const RECORD: &str = "record";

/// The question, for faults.
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
        let record = Entity::new(uid(&vocabulary.audit, RECORD), [].into(), [].into());
        let access_question = AccessQuestion {
            action,
            resource: record.map_err(|_| DecisionFault::Refused(WHAT))?,
            policies,
            what: WHAT,
        };
        self.decide_reading(caller, access_question)
    }
}
