//! Filtering of messages by the current rights of the reader.
//!
//! ```text
//!   tool's result ─▶ would the policy let this reader make that call, and see as much of it?
//!      yes ─▶ shown         no, or the policy is unavailable ─▶ withheld, with everything written after it
//! ```
//!
//! A result was produced under certain rights: a row rule and column tiers. Under any other rights the result is
//! withheld, even under wider ones, because only the tool knows what the result would have been.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use wardgate_domain::{
    About, AnsweredCall, AttributeType, BearerToken, Caller, ColumnTier, ConversationFacts,
    ConversationKey, Digest, Message, OperatorAction, PermitTerms, ReadDecision, Source, ToolFacts,
    Verdict,
};
use wardgate_rpc::client::{
    CallError, IdentifiedOperator, OperatorError, OperatorRights, PolicyClient,
};

use crate::owner::Owner;
use crate::store::{CallRights, ConversationExcerpt, GroundingResult, StoredMessage};
use crate::tool_digest::digest_of_tool;

/// Maximum number of concurrent requests to the policy service.
const AT_ONCE: usize = 8;

/// The caller of a request and the address of the caller's client.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) client_ip: &'a str,
}

/// The rights of callers: identifies callers and returns what they may do now.
pub(crate) trait Rights: Clone + Send + Sync + 'static {
    /// Verifies `token` and returns its caller.
    fn identify(
        &self,
        token: &BearerToken,
    ) -> impl Future<Output = Result<Caller, CallError>> + Send;

    /// Returns what the caller would see of the call, or `None` if the policy denies it.
    fn of_call(
        &self,
        context: RequestContext<'_>,
        tool: &ToolFacts,
        arguments: Bytes,
    ) -> impl Future<Output = Result<Option<CallRights>, CallError>> + Send;

    /// Verifies `token` and returns its operator, if the operator may manage conversations.
    fn authorize_manager(
        &self,
        token: &str,
    ) -> impl Future<Output = Result<IdentifiedOperator, OperatorError>> + Send;

    /// Returns the decision that the caller may read a conversation of another owner, or `None` if the policy denies it.
    fn may_recall(
        &self,
        caller: &Caller,
        conversation: ConversationKey,
        owner: &Owner,
    ) -> impl Future<Output = Result<Option<ReadDecision>, CallError>> + Send;
}

impl Rights for PolicyClient {
    async fn authorize_manager(&self, token: &str) -> Result<IdentifiedOperator, OperatorError> {
        let rights = OperatorRights::new(Some(self.clone()), "memory.links.policy");
        rights.decide(token, OperatorAction::ManageRecord).await
    }

    async fn identify(&self, token: &BearerToken) -> Result<Caller, CallError> {
        self.identify(token).await
    }

    async fn of_call(
        &self,
        context: RequestContext<'_>,
        tool: &ToolFacts,
        arguments: Bytes,
    ) -> Result<Option<CallRights>, CallError> {
        let decision = self
            .authorize(context.caller, tool, &arguments, context.client_ip)
            .await?;
        let Verdict::Allow(permit) = &decision.verdict else {
            return Ok(None);
        };
        let terms = permit.unverified_terms()?;
        Ok(Some(CallRights {
            rights: digest_of(&terms),
            policy_hash: decision.policy_hash,
            by_arguments: terms.arguments_digest.is_some(),
        }))
    }

    async fn may_recall(
        &self,
        caller: &Caller,
        conversation: ConversationKey,
        owner: &Owner,
    ) -> Result<Option<ReadDecision>, CallError> {
        let conversation = ConversationFacts {
            key: conversation,
            owner: owner.subject.clone(),
            tenant: owner.tenant.clone(),
        };
        let decision = self.authorize_recall(caller, &conversation).await?;
        Ok(decision.allowed.then_some(decision))
    }
}

/// Returns a digest of all terms that determine what a caller sees of a result.
fn digest_of(terms: &PermitTerms) -> Digest {
    let mut about = About::new("rights").and(&[u8::from(terms.arguments_digest.is_some())]);
    if let Some(rule) = &terms.row_rule {
        about = about
            .and(rule.entity.as_bytes())
            .and(&[u8::from(rule.all)])
            .and(&rule.policies_json.len().to_be_bytes());
        for policy in &rule.policies_json {
            about = about.and(policy.as_bytes());
        }
        for (name, kind) in &rule.attributes {
            let kind: &[u8] = match kind {
                AttributeType::Text => b"text",
                AttributeType::Integer => b"integer",
                AttributeType::Boolean => b"boolean",
            };
            about = about.and(name.as_bytes()).and(kind);
        }
    }
    about = about.and(b"tiers");
    for (class, tier) in &terms.column_tiers {
        let tier: &[u8] = match tier {
            ColumnTier::Clear => b"clear",
            ColumnTier::Partial => b"partial",
            ColumnTier::Pseudonym => b"pseudonym",
            ColumnTier::Generalised => b"generalised",
            ColumnTier::Dropped => b"dropped",
        };
        about = about.and(class.as_str().as_bytes()).and(tier);
    }
    about.digest()
}

/// The policy's verdict on one call.
#[derive(Clone, Copy)]
enum CallVerdict {
    Allowed(CallRights),
    Denied,
}

impl CallVerdict {
    fn call_rights(self) -> Option<CallRights> {
        match self {
            Self::Allowed(call_rights) => Some(call_rights),
            Self::Denied => None,
        }
    }
}

/// The policy's verdicts on the calls of one request. Each question is asked once.
struct CallVerdicts {
    /// The verdicts on tools for which the arguments make no difference.
    by_tool: HashMap<Digest, CallVerdict>,
    by_call: HashMap<(Digest, Bytes), CallVerdict>,
}

impl CallVerdicts {
    async fn fetch<'a>(
        rights: &impl Rights,
        context: RequestContext<'_>,
        calls: impl Iterator<Item = &'a AnsweredCall>,
    ) -> Result<Self, CallError> {
        let mut verdicts = Self {
            by_tool: HashMap::new(),
            by_call: HashMap::new(),
        };
        let calls: Vec<_> = calls
            .map(|call| (digest_of_tool(&call.tool), call))
            .collect();
        // One call of each tool is asked first, because its verdict often applies to every call of the tool.
        let mut seen = HashSet::new();
        let first_of_tools = calls.iter().filter(|(tool, _)| seen.insert(*tool));
        verdicts.add(rights, context, first_of_tools).await?;
        let mut seen = HashSet::new();
        let open: Vec<_> = calls
            .iter()
            .filter(|(tool, call)| {
                verdicts.get(*tool, call).is_none() && seen.insert((*tool, &call.arguments))
            })
            .collect();
        verdicts.add(rights, context, open.into_iter()).await?;
        Ok(verdicts)
    }

    async fn add<'a>(
        &mut self,
        rights: &impl Rights,
        context: RequestContext<'_>,
        calls: impl Iterator<Item = &'a (Digest, &'a AnsweredCall)>,
    ) -> Result<(), CallError> {
        let questions: Vec<_> = calls
            .map(|(tool, call)| async move {
                let verdict = rights.of_call(context, &call.tool, call.arguments.clone());
                let verdict = verdict
                    .await?
                    .map_or(CallVerdict::Denied, CallVerdict::Allowed);
                Ok::<_, CallError>(((*tool, call.arguments.clone()), verdict))
            })
            .collect();
        let answered: Vec<_> = stream::iter(questions)
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        for ((tool, arguments), verdict) in answered {
            if verdict
                .call_rights()
                .is_some_and(|call_rights| !call_rights.by_arguments)
            {
                self.by_tool.insert(tool, verdict);
            }
            self.by_call.insert((tool, arguments), verdict);
        }
        Ok(())
    }

    fn get(&self, tool: Digest, call: &AnsweredCall) -> Option<CallVerdict> {
        let by_call = || self.by_call.get(&(tool, call.arguments.clone()));
        self.by_tool.get(&tool).or_else(by_call).copied()
    }

    /// Returns whether the caller sees as much of the call as when its result was produced.
    fn has_unchanged_rights(&self, call: &AnsweredCall, given_under: Digest) -> bool {
        let verdict = self.get(digest_of_tool(&call.tool), call);
        let call_rights = verdict.and_then(CallVerdict::call_rights);
        call_rights.is_some_and(|call_rights| call_rights.rights == given_under)
    }
}

/// Returns the caller's rights to each of `calls`, in the same order; `None` where the policy denies the call.
pub(crate) async fn rights_of_calls(
    rights: &impl Rights,
    context: RequestContext<'_>,
    calls: &[&AnsweredCall],
) -> Result<Vec<Option<CallRights>>, CallError> {
    let verdicts = CallVerdicts::fetch(rights, context, calls.iter().copied()).await?;
    let call_rights = |call: &&AnsweredCall| {
        verdicts
            .get(digest_of_tool(&call.tool), call)
            .and_then(CallVerdict::call_rights)
    };
    Ok(calls.iter().map(call_rights).collect())
}

/// Returns the messages of `reading` as the caller may read them: those that the policy no longer allows are emptied.
pub(crate) async fn filter_readable(
    rights: &impl Rights,
    context: RequestContext<'_>,
    reading: ConversationExcerpt,
) -> Vec<Message> {
    let ConversationExcerpt {
        messages,
        grounds,
        unjudged_from,
        ..
    } = reading;
    let own = messages
        .iter()
        .filter_map(|stored| stored.message.call.as_ref());
    let calls = own.chain(grounds.iter().map(|ground| &ground.call));
    let verdicts = CallVerdicts::fetch(rights, context, calls).await;
    // If the policy is unavailable, everything that depends on a tool is withheld.
    let verdicts = verdicts.inspect_err(|error| {
        tracing::warn!(%error, "the policy service cannot be reached; the results of tools are withheld");
    });
    let filter = RightsFilter {
        verdicts: verdicts.ok(),
    };
    let first_withheld = filter.first_withheld(&messages, &grounds);
    // Results beyond the number that can be judged count as withheld.
    let tainted_from = [first_withheld, unjudged_from].into_iter().flatten().min();
    messages
        .into_iter()
        .map(|stored| {
            let withheld = filter.withholds_result(&stored)
                || tainted_from.is_some_and(|from| from <= stored.rests_up_to());
            let message = stored.message;
            if withheld {
                remove_texts(message)
            } else {
                message
            }
        })
        .collect()
}

/// Decides which messages a reader may read. Without verdicts every result of a tool is withheld.
struct RightsFilter {
    verdicts: Option<CallVerdicts>,
}

impl RightsFilter {
    fn may_see(&self, call: Option<&AnsweredCall>, given_under: Option<Digest>) -> bool {
        let given = call.zip(given_under);
        let verdicts = self.verdicts.as_ref();
        let known = given.zip(verdicts);
        known.is_some_and(|((call, rights), verdicts)| verdicts.has_unchanged_rights(call, rights))
    }

    fn withholds_result(&self, StoredMessage { message, rights }: &StoredMessage) -> bool {
        message.source == Source::Tool && !self.may_see(message.call.as_ref(), *rights)
    }

    /// Returns the position of the first result that is withheld.
    fn first_withheld(
        &self,
        messages: &[StoredMessage],
        grounds: &[GroundingResult],
    ) -> Option<u64> {
        let results = messages
            .iter()
            .filter(|stored| self.withholds_result(stored))
            .map(|stored| stored.message.position);
        let grounds = grounds
            .iter()
            .filter(|ground| !self.may_see(Some(&ground.call), Some(ground.rights)))
            .map(|ground| ground.position);
        results.chain(grounds).min()
    }
}

/// Returns the message without its texts. A result keeps the name of its tool, so that a model can tell what was
/// withheld.
fn remove_texts(message: Message) -> Message {
    Message {
        content: String::new(),
        calls: Bytes::new(),
        call: message.call.map(|call| AnsweredCall {
            arguments: Bytes::new(),
            tool: ToolFacts {
                read_only: false,
                tags: Arc::default(),
                entity: None,
                classes: Vec::new(),
                argument_defaults: std::collections::BTreeMap::new(),
                ..call.tool
            },
            ..call
        }),
        withheld: true,
        ..message
    }
}
