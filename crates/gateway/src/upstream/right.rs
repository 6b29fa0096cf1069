//! The right that an errand needs: of which kind, about what.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use wardgate_domain::{Decision, DenialReason, OfferKind, ToolFacts};
use wardgate_rpc::client::Offer;

use super::Visit;
use super::errand::{Errand, Subject};
use crate::Gateway;
use crate::authority::{Authorization, Grant};
use crate::catalogue::{Source, Tool};
use crate::reply::RpcError;

/// What is asked of the policy, and what the permit is for.
pub(super) struct Right {
    pub(super) facts: ToolFacts,
    pub(super) arguments: Bytes,
    /// A use of it is an event of its own, and on the record.
    pub(super) recorded: bool,
    /// Of a tool.
    pub(super) tool: Option<Arc<Tool>>,
}

/// Why there is none.
pub(super) enum NoRight {
    Denied {
        decision: Decision,
        reason: DenialReason,
        visible: bool,
    },
    /// There is no such tool any more, or it is off for the caller.
    Gone,
    /// The policy service did not decide; what the client hears.
    Undecided(RpcError),
}

impl Right {
    /// The right that `errand` needs; none where the source has no such thing, or it is off for the caller.
    pub(super) fn of(
        gateway: &Gateway,
        source: &Source,
        visit: &Visit,
        errand: &Errand,
    ) -> Option<Self> {
        match &errand.subject {
            Subject::Tool { name, arguments } => {
                Self::of_tool(gateway, source, visit, name, arguments.clone())
            }
            Subject::Resource { uri } => Self::of_kind(source, OfferKind::Resources, uri),
            Subject::Prompt { name, .. } => Self::of_kind(source, OfferKind::Prompts, name),
            _ => Self::of_kind(source, OfferKind::Connect, ""),
        }
    }

    /// The right to call the tool that the source has under this name.
    pub(super) fn of_tool(
        gateway: &Gateway,
        source: &Source,
        visit: &Visit,
        own_name: &str,
        arguments: Bytes,
    ) -> Option<Self> {
        let catalogue = gateway.catalogue().current()?;
        let tool = catalogue.find(source.tools.get(own_name)?.as_str())?;
        let tool = Arc::clone(tool);
        tool.switches.allow(&visit.caller).then(|| Self {
            facts: tool.facts.clone(),
            arguments,
            recorded: true,
            tool: Some(tool),
        })
    }

    /// The right to something of the source that is no tool.
    pub(super) fn of_kind(source: &Source, kind: OfferKind, which: &str) -> Option<Self> {
        let arguments = match kind {
            OfferKind::Resources => json!({ "uri": which }),
            OfferKind::Prompts => json!({ "name": which }),
            OfferKind::Connect | OfferKind::Tool => json!({}),
        };
        Some(Self {
            facts: source.facts.get(&kind)?.clone(),
            arguments: arguments.to_string().into(),
            recorded: kind != OfferKind::Connect,
            tool: None,
        })
    }

    pub(super) fn offer(&self) -> Offer<'_> {
        match self.facts.kind {
            OfferKind::Tool => Offer::Tool(&self.facts.name),
            OfferKind::Connect => Offer::Connect,
            OfferKind::Resources => Offer::Resources,
            OfferKind::Prompts => Offer::Prompts,
        }
    }

    /// What the policy says.
    pub(super) async fn decide(
        &self,
        gateway: &Gateway,
        visit: &Visit,
    ) -> Result<Arc<Grant>, NoRight> {
        let authority = gateway.authority();
        let asked = authority.authorize(
            &visit.caller,
            &self.facts,
            &self.arguments,
            &visit.client_ip,
        );
        match asked.await {
            Ok(Authorization::Allowed(grant)) => Ok(grant),
            Ok(Authorization::Denied {
                decision,
                reason,
                visible,
            }) => Err(NoRight::Denied {
                decision,
                reason,
                visible,
            }),
            Err(error) => Err(NoRight::Undecided(gateway.undecided(&error))),
        }
    }
}
