//! Decisions about access other than the use of a tool: a read of somebody else's conversation, or an operator action.

use cedar_policy::{Context, Entities, Entity, EntityUid, Request};

use crate::call::{CallAnswer, decide};
use crate::fault::DecisionFault;
use crate::set::PolicySet;

/// The question whether a caller has such access, as a Cedar action and resource.
pub(crate) struct AccessQuestion<'a> {
    pub(crate) action: &'a EntityUid,
    pub(crate) resource: Entity,
    /// The policies that can apply to the question.
    pub(crate) policies: &'a cedar_policy::PolicySet,
    /// A name for the question in the error if Cedar refuses it.
    pub(crate) what: &'static str,
}

impl PolicySet {
    /// Decides the question for `caller`, an entity whose parents are its roles.
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
