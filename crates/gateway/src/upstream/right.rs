//! The right that an upstream request needs: its kind, and what it is about.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use wardgate_domain::{Decision, DenialReason, OfferKind, ToolFacts};
use wardgate_rpc::client::Offer;

use super::RouteRequest;
use super::upstream_request::{RequestSubject, UpstreamRequest};
use crate::Gateway;
use crate::authority::{Authorization, Grant};
use crate::catalogue::{Source, Tool};
use crate::rpc_error::RpcError;

/// The right that the policy decides on and the permit is for.
pub(super) struct AccessRight {
    pub(super) facts: ToolFacts,
    pub(super) arguments: Bytes,
    /// Whether each use is recorded.
    pub(super) recorded: bool,
    /// The tool. None for other rights.
    pub(super) tool: Option<Arc<Tool>>,
}

/// The reason for which the caller has no access.
pub(super) enum AccessError {
    Denied {
        decision: Decision,
        reason: DenialReason,
        visible: bool,
    },
    /// The tool is gone, or switched off for the caller.
    Gone,
    /// The policy service did not decide; the error for the client.
    Undecided(RpcError),
}

impl AccessRight {
    /// The right that `upstream_request` needs. None if the source has no such tool, or it is off for the caller.
    pub(super) fn for_request(
        gateway: &Gateway,
        source: &Source,
        route_request: &RouteRequest,
        upstream_request: &UpstreamRequest,
    ) -> Option<Self> {
        match &upstream_request.subject {
            RequestSubject::Tool { name, arguments } => {
                Self::for_tool(gateway, source, route_request, name, arguments.clone())
            }
            RequestSubject::Resource { uri } => Self::for_offer(source, OfferKind::Resources, uri),
            RequestSubject::Prompt { name, .. } => {
                Self::for_offer(source, OfferKind::Prompts, name)
            }
            _ => Self::for_offer(source, OfferKind::Connect, ""),
        }
    }

    /// The right to call the tool that the source has under this name.
    pub(super) fn for_tool(
        gateway: &Gateway,
        source: &Source,
        route_request: &RouteRequest,
        own_name: &str,
        arguments: Bytes,
    ) -> Option<Self> {
        let catalogue = gateway.catalogue().current()?;
        let tool = catalogue.find(source.tools.get(own_name)?.as_str())?;
        let tool = Arc::clone(tool);
        tool.switches.allow(&route_request.caller).then(|| Self {
            facts: tool.facts.clone(),
            arguments,
            recorded: true,
            tool: Some(tool),
        })
    }

    /// The right to something of the source that is no tool.
    pub(super) fn for_offer(source: &Source, kind: OfferKind, which: &str) -> Option<Self> {
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

    /// Asks the policy.
    pub(super) async fn decide(
        &self,
        gateway: &Gateway,
        route_request: &RouteRequest,
    ) -> Result<Arc<Grant>, AccessError> {
        let authority = gateway.authority();
        let asked = authority.authorize(
            &route_request.caller,
            &self.facts,
            &self.arguments,
            &route_request.client_ip,
        );
        match asked.await {
            Ok(Authorization::Allowed(grant)) => Ok(grant),
            Ok(Authorization::Denied {
                decision,
                reason,
                visible,
            }) => Err(AccessError::Denied {
                decision,
                reason,
                visible,
            }),
            Err(error) => Err(AccessError::Undecided(gateway.undecided(&error))),
        }
    }
}
