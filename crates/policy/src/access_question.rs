//! May the caller read what no tool gives: a conversation of somebody else, or the record?

use cedar_policy::{Context, Entities, Entity, EntityUid, Request};

use crate::call::{CallAnswer, decide};
use crate::fault::DecisionFault;
use crate::set::PolicySet;

/// The question whether a caller may read something, in the words of the schema.
pub(crate) struct AccessQuestion<'a> {
    pub(crate) action: &'a EntityUid,
    pub(crate) resource: Entity,
    /// The policies that can apply.
    pub(crate) policies: &'a cedar_policy::PolicySet,
    /// Names it, where it cannot be asked.
    pub(crate) what: &'static str,
}

impl PolicySet {
    /// Decides for `caller`, an entity that knows its roles.
    pub(crate) fn decide_reading(
        &self,
        caller: Entity,
        access_question: AccessQuestion<'_>,
    ) -> Result<CallAnswer, DecisionFault> {
        let AccessQuestion {
            action,
            resource,
            policies,
            what,
        } = access_question;
        let refused = || DecisionFault::Refused(what);
        let schema = Some(&self.vocabulary.schema);
        let (principal, of) = (caller.uid(), resource.uid());
        let entities =
            Entities::from_entities([caller, resource], schema).map_err(|_| refused())?;
        let request = Request::new(principal, action.clone(), of, Context::empty(), schema)
            .map_err(|_| refused())?;
        decide(&request, policies, &entities)
    }
}
