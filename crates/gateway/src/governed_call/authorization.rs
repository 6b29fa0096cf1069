//! The authorization of a call: by the switches of the catalogue, the policy, the client's capabilities and the token's scopes.

use std::sync::Arc;
use std::time::Instant;

use tracing::Span;
use wardgate_domain::{CallReference, SignedApproval};
use wardgate_gateway_record::{AuditLog, stage};
use wardgate_mcp_server::RpcError;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::CallError;
use wardgate_telemetry::names;

use super::call_record::CallRecord;
use super::description::{CatalogueEntry, Description, EntryUse};
use super::operation::OperationServices;
use super::rejection::Rejection;
use crate::authority::{ApprovalNeed, Authorization, Grant};
use crate::catalogue;
use crate::client_interaction::ClientInteraction;
use crate::request_context::RequestContext;

/// The tool name for a request to the policy service about a name that is not in the catalogue.
const UNNAMED_TOOL: &str = "unknown";

/// The grant of a call, or the approval that the call needs first.
pub(super) type GrantOrNeed = Result<Arc<Grant>, Box<ApprovalNeed>>;

/// Authorizes one call, and adds the decision to the call's record.
pub(super) struct CallAuthorizer<'a> {
    pub(super) services: &'a OperationServices,
    pub(super) audit_log: &'a AuditLog,
    pub(super) context: &'a RequestContext,
    pub(super) client: &'a ClientInteraction,
    pub(super) record: &'a mut CallRecord,
    /// Whether the catalogue was known when the request was described.
    pub(super) has_catalogue: bool,
    /// The approval that the call is authorized with.
    pub(super) approval: Option<&'a SignedApproval>,
}

impl CallAuthorizer<'_> {
    /// Checks the entry's switches, the policy, the client's capabilities and the token's scopes, in this order. Returns the
    /// grant of the call, or the approval that it needs.
    pub(super) async fn authorize_entry<'d, R: CatalogueEntry>(
        &mut self,
        description: &'d Description<'_, R>,
    ) -> Result<(&'d EntryUse<R>, GrantOrNeed), Rejection> {
        if let Some(refusal) = description.agent_refusal {
            return Err(Rejection::RefusedByAgent(refusal));
        }
        let Some(entry_use) = &description.entry_use else {
            if !self.has_catalogue {
                let (kind, message) = catalogue::NOT_KNOWN;
                return Err(Rejection::Failed { kind, message });
            }
            self.deny_unknown().await?;
            return Err(Rejection::Unknown);
        };
        let resource = &entry_use.entry;
        let facts = resource.facts();
        self.record.facts.tool = Some(facts.name.clone());
        self.record.facts.definition_digest = Some(facts.definition_digest);
        self.record.facts.tags = Some(Arc::clone(&facts.tags));
        Span::current().record(names::TOOL, facts.name.as_str());
        if !resource.is_enabled_for(&self.context.caller) {
            self.deny_unknown().await?;
            return Err(Rejection::Disabled);
        }
        let authorized = self.authorize(entry_use).await;
        let authorized = match authorized {
            Err(Rejection::Denied {
                need: Some(need), ..
            }) => Err(need),
            authorized => Ok(authorized?),
        };
        resource.check_request(description, self.client)?;
        let access = &self.context.access;
        let applied = access.check_use(description.method, facts);
        applied.map_err(Rejection::Scope)?;
        Ok((entry_use, authorized))
    }

    /// Asks the policy service, and adds its decision to the call's record. If the decision depends on earlier calls, the
    /// intent of this call is recorded before the service counts them.
    pub(super) async fn authorize<R: CatalogueEntry>(
        &mut self,
        entry_use: &EntryUse<R>,
    ) -> Result<Arc<Grant>, Rejection> {
        let started = Instant::now();
        let mut authorization = self.ask_policy(entry_use).await;
        if let Ok(Authorization::NeedsIntent(decision)) = &authorization
            && !self.record.has_intent
        {
            self.record.facts.record_decision(decision);
            self.record.record_intent(self.audit_log).await?;
            authorization = self.ask_policy(entry_use).await;
        }
        stage("authorize", started.elapsed());
        match authorization {
            Ok(Authorization::Allowed(grant)) => {
                self.record.facts.record_decision(&grant.decision);
                self.record.facts.permit_id = Some(grant.permit_id);
                self.record.grant = Some(Arc::clone(&grant));
                Ok(grant)
            }
            Ok(Authorization::Denied {
                decision,
                reason,
                visible,
                need,
            }) => {
                self.record.facts.record_decision(&decision);
                Err(Rejection::Denied {
                    reason,
                    decision: decision.id,
                    visible,
                    need,
                })
            }
            Ok(Authorization::NeedsIntent(decision)) => {
                let decision = decision.id;
                tracing::error!(%decision, "the policy service requires a recorded intent");
                Err(Rejection::NotAttempted(RpcError::not_decided()))
            }
            Err(error) => Err(self.authorization_rejection(&error)),
        }
    }

    async fn ask_policy<R: CatalogueEntry>(
        &self,
        entry_use: &EntryUse<R>,
    ) -> Result<Authorization, CallError> {
        let RequestContext {
            caller, client_ip, ..
        } = self.context;
        let (facts, arguments) = (entry_use.entry.facts(), &entry_use.policy_arguments);
        let authority = self.services.discovery.authority();
        let call = CallReference {
            call_id: self.record.facts.call_id,
            has_intent: self.record.has_intent,
            conversation: self.record.facts.conversation,
        };
        let approval = self.approval;
        let decided =
            authority.authorize_call(caller, facts, arguments, approval, client_ip, Some(call));
        decided.await
    }

    /// Asks the policy service for a denial, which takes as long as that of a hidden entry, so that response times do not tell
    /// a hidden entry from an unknown one.
    async fn deny_unknown(&self) -> Result<(), Rejection> {
        let RequestContext {
            caller, client_ip, ..
        } = self.context;
        let authority = self.services.discovery.authority();
        let denied = authority
            .deny_unknown(caller, UNNAMED_TOOL, client_ip)
            .await;
        denied.map_err(|error| self.authorization_rejection(&error))
    }

    /// Returns the rejection of a call that the policy service did not decide.
    fn authorization_rejection(&self, error: &CallError) -> Rejection {
        let answer = self.services.discovery.authority().undecided_error(error);
        match error.reason() {
            ErrorReason::TokenRefused => Rejection::Scope(answer),
            _ => Rejection::NotAttempted(answer),
        }
    }
}
