//! May the caller read what no tool gives: a conversation of somebody else, or the record?

use cedar_policy::{Authorizer, Context, Entities, Entity, EntityUid, Request};
use wardgate_domain::DenialReason;

use crate::call::{Answer, Denial, decided, failing, ids};
use crate::fault::Fault;
use crate::set::PolicySet;

/// Such a question, in the words of the schema.
pub(crate) struct Reading<'a> {
    pub(crate) action: &'a EntityUid,
    pub(crate) resource: Entity,
    /// The policies that can apply.
    pub(crate) policies: &'a cedar_policy::PolicySet,
    /// Names it, where it cannot be asked.
    pub(crate) what: &'static str,
}

/// The answer where the schema has no words for the question.
pub(crate) fn no_words() -> Answer {
    Err(Denial {
        reason: DenialReason::NotPermitted,
        policies: Vec::new(),
    })
}

impl PolicySet {
    /// Decides for `caller`, an entity that knows its roles.
    pub(crate) fn decide_reading(
        &self,
        caller: Entity,
        reading: Reading<'_>,
    ) -> Result<Answer, Fault> {
        let Reading {
            action,
            resource,
            policies,
            what,
        } = reading;
        let refused = || Fault::Refused(what);
        let schema = Some(&self.words.schema);
        let (principal, of) = (caller.uid(), resource.uid());
        let entities =
            Entities::from_entities([caller, resource], schema).map_err(|_| refused())?;
        let request = Request::new(principal, action.clone(), of, Context::empty(), schema)
            .map_err(|_| refused())?;
        let response = Authorizer::new().is_authorized(&request, policies, &entities);
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
