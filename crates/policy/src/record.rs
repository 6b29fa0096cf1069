//! May the caller read the record of what everybody did?

use cedar_policy::{Authorizer, Context, Entities, Entity, Request};
use wardgate_domain::DenialReason;

use crate::call::{Answer, Denial, decided, failing, ids};
use crate::fault::Fault;
use crate::set::PolicySet;
use crate::vocabulary::uid;

/// There is one record.
const RECORD: &str = "record";

impl PolicySet {
    /// Decides for `caller`, an entity that knows its roles. Without words for it the answer is no.
    pub(crate) fn record(&self, caller: Entity) -> Result<Answer, Fault> {
        let words = &self.words;
        let Some(auditing) = &words.auditing else {
            return Ok(Err(Denial {
                reason: DenialReason::NotPermitted,
                policies: Vec::new(),
            }));
        };
        let refused = || Fault::Refused("the question whether the record may be read");
        let principal = caller.uid();
        let resource = uid(&auditing.audit, RECORD);
        let record = Entity::new(resource.clone(), [].into(), [].into()).map_err(|_| refused())?;
        let entities = Entities::from_entities([caller, record], Some(&words.schema))
            .map_err(|_| refused())?;
        let request = Request::new(
            principal,
            auditing.read_record.clone(),
            resource,
            Context::empty(),
            Some(&words.schema),
        )
        .map_err(|_| refused())?;
        let response = Authorizer::new().is_authorized(&request, &self.read_record, &entities);
        let failing = failing(response.diagnostics());
        if !failing.is_empty() {
            return Err(Fault::Policies(failing));
        }
        Ok(decided(
            response.decision(),
            ids(response.diagnostics().reason()),
        ))
    }
}
