//! What a story can be of: what is wanted, what of that was found, and what came of it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tracing::Span;
use wardgate_domain::{AgentRefusal, CallFacts, CallId, Caller, Digest, Outcome, ToolFacts};
use wardgate_rpc::client::{InputRequired, ResultFacts, Resumption};

use super::{Asker, Ran, Stop, Story};
use crate::authority::Grant;
use crate::call_tool::PackedCall;
use crate::catalogue::Index;
use crate::content::PackedWish;
use crate::dialogue::Dialogue;
use crate::mcp::Version;
use crate::reply::{Answer, RpcError};
use crate::trail::Recorded;
use crate::view::View;

/// What is wanted.
pub(crate) trait Work: Send + Sync + Sized + 'static {
    type Target: Target;
    type Given: Given;

    /// How the record says that there is no such thing.
    const UNKNOWN: &'static str;

    /// Of MCP.
    fn method(&self) -> &'static str;

    /// As it arrives, for the record and for traces.
    fn arrives(&self, call_id: CallId, asker: &Asker) -> (CallFacts, Span);

    /// Why the agent that sends it does not make it: then it is put on record, and neither looked for nor run.
    fn agent_refusal(&self) -> Option<AgentRefusal> {
        None
    }

    /// What it is of; none where nobody offers that, or not in this view.
    fn find(&self, catalogue: &Index, view: &View) -> Option<Self::Target>;

    /// What the policy decides on.
    fn arguments(&self, target: &Self::Target) -> Bytes;

    /// Whether it may write; then its intent is on record before it runs.
    fn may_write(&self, facts: &ToolFacts) -> bool {
        !facts.read_only
    }

    /// What else the request must say of `target`, and its client be able to do. Only who may have it learns of that.
    fn check(&self, _target: &Self::Target, _client: &Dialogue) -> Result<(), Stop> {
        Ok(())
    }

    /// Method, name and arguments: what is asked for again belongs to the same. None of what never asks.
    fn matter(&self) -> Option<(&'static str, &str, &[u8])>;

    /// Runs it, or the next leg of it.
    fn run(
        story: &mut Story<Self>,
        target: &Self::Target,
        grant: &Grant,
        resumption: Option<Resumption>,
    ) -> impl Future<Output = Result<End<Self::Given>, Ran>> + Send;

    /// What another gateway needs to go on with it while it waits for its client, or to decide on it anew; none of what
    /// has one answer and no word before that.
    fn pack(&self) -> Option<Packed>;

    /// Counts and tells how it ended. Of what is hidden from its caller no number shows the name.
    fn report(&self, outcome: &Outcome, is_hidden: bool);

    /// Lets out what was given. It needs the receipt.
    fn release(story: &Story<Self>, recorded: Recorded, given: &Self::Given) -> Answer;

    /// What its client hears of `stop` in words of its own.
    fn stopped(_story: &Story<Self>, _recorded: Recorded, _stop: &Stop) -> Option<Answer> {
        None
    }

    /// What may not be known of is answered like what there is not.
    fn not_there(&self, version: Version) -> RpcError;
}

/// What a wish was found to be of.
pub(crate) trait Target: Send + Sync {
    fn facts(&self) -> &ToolFacts;
    fn is_on(&self, caller: &Caller) -> bool;
    /// Who asks, where it asks the client for something.
    fn label(&self) -> &str;
}

/// What came of it.
pub(crate) trait Given: Send {
    fn facts(&self) -> &ResultFacts;
    /// Of what is released.
    fn digest(&self) -> Option<Digest>;
}

/// How a run ends, or a leg of it.
#[derive(Debug)]
pub(crate) enum End<G> {
    Given(G),
    InputRequired(Box<InputRequired>),
}

/// What is wanted, so written that any gateway can read it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Packed {
    Call(PackedCall),
    Content(PackedWish),
}
