//! The story that calls of tools and uses of prompts and resources share: find → authorise → intent → run → outcome →
//! release.
//!
//! ```text
//!   decide ──▶ run ──▶ a result ─────────────────────────────────┐
//!     ▲         ▲  └─▶ what it waits for                         ├─▶ outcome on record ─▶ answer
//!     │         │       ├ an older client is asked here, and on ─┤
//!     │         └───────┘                                        │
//!     └── a modern one comes back with `requestState` ◀── asked ─┘
//! ```
//!
//! What is run, and how its result is written, each [`Work`] says.

mod basis;
mod onward;
mod pending;
mod stop;
mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::sleep;
use tracing::{Instrument, Span};
use wardgate_domain::{
    CallFacts, CallId, Caller, Digest, Event, NOT_A_NAME, Outcome, Status, ToolName,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_resilience::concurrency::{RecordingSlot, Slot};
use wardgate_rpc::client::{CallError, InputRequired, ResultFacts, Resumption};
use wardgate_telemetry::{names, trace_context};

use crate::Gateway;
use crate::authority::{Authorization, Grant};
use crate::catalogue;
use crate::dialogue::{self, Asked, Audience, Dialogue, Questions, Terms, Unanswered};
use crate::mcp::{Request, Version};
use crate::measures;
use crate::reply::{Answer, RpcError, call_meta};
use crate::scopes::Access;
use crate::stages::stage;
use crate::trail::Recorded;
use crate::view::View;

use self::onward::Onward;
use self::pending::{Pending, Resumed};

pub(crate) use self::basis::{Basis, Undecided};
pub(crate) use self::onward::{Comer, go_on};
pub(crate) use self::stop::{Ran, Stop};
pub(crate) use self::work::{End, Given, Packed, Target, Work};

/// How often one call may ask its client for something.
const MOST_ROUNDS: usize = 8;

/// How long what only wants to be called again waits for it.
const PACE: Duration = Duration::from_millis(250);

/// What the policy is asked about where what is wanted has no name of a tool.
const UNNAMED: &str = "unknown";

/// Who wants something.
#[derive(Debug)]
pub(crate) struct Asker {
    /// Its place among what is worked on.
    pub(crate) slot: Option<Slot>,
    /// The JSON-RPC id, as written.
    pub(crate) id: Box<RawValue>,
    pub(crate) version: Version,
    pub(crate) caller: Arc<Caller>,
    pub(crate) client_ip: String,
    pub(crate) view: View,
    /// What the token is good for.
    pub(crate) access: Access,
}

/// How it ends for the client.
enum Ending<G> {
    Given(G),
    /// A modern client is asked to come back.
    Asks {
        questions: Questions,
        state: String,
        facts: ResultFacts,
    },
}

/// A wish on its way.
pub(crate) struct Story<W> {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) asker: Asker,
    pub(crate) work: W,
    pub(crate) dialogue: Dialogue,
    /// What the record is to hear of.
    pub(crate) facts: CallFacts,
    /// By what it runs, once that is decided.
    grant: Option<Arc<Grant>>,
    /// The record knows that it may have begun.
    intended: bool,
    resumed: Resumed,
}

/// Tells the story of `work` to its recorded end. Gives what the client gets first, which is all of it where nothing is
/// said before the answer.
pub(crate) async fn tell<W: Work>(
    gateway: &Arc<Gateway>,
    request: &Request<'_>,
    (asker, terms): (Asker, Terms),
    work: W,
) -> Result<Answer, RpcError> {
    let resumed = match work.matter().filter(|_| asker.version.is_modern()) {
        Some(matter) => Resumed::of(gateway, &asker, matter, request)?,
        None => Resumed::default(),
    };
    Ok(begin(gateway, (asker, terms), work, resumed).await)
}

/// The same of what no request of its own asks for.
pub(crate) async fn tell_unasked<W: Work>(
    gateway: &Arc<Gateway>,
    (asker, terms): (Asker, Terms),
    work: W,
) -> Answer {
    begin(gateway, (asker, terms), work, Resumed::default()).await
}

async fn begin<W: Work>(
    gateway: &Arc<Gateway>,
    (asker, terms): (Asker, Terms),
    work: W,
    resumed: Resumed,
) -> Answer {
    let trace = terms.trace.clone();
    let id = asker.id.clone();
    let (dialogue, answer) = dialogue::open(terms);
    let (story, span) = Story::new(gateway, asker, work, dialogue, resumed);
    trace_context::adopt(&span, &trace);
    let call_id = story.facts.call_id;
    gateway
        .stories
        .spawn(story.tell_to_its_end().instrument(span));
    answer.await.unwrap_or_else(|_| {
        let error = RpcError::internal("panic", "Internal error.").of_call(call_id, None);
        Answer::error(Some(&id), &error)
    })
}

fn unanswered(unanswered: Unanswered) -> Stop {
    match unanswered {
        Unanswered::Cancelled => Stop::Cancelled,
        unanswered => Stop::Unanswered(unanswered),
    }
}

impl<W: Work> Story<W> {
    fn new(
        gateway: &Arc<Gateway>,
        asker: Asker,
        work: W,
        dialogue: Dialogue,
        resumed: Resumed,
    ) -> (Self, Span) {
        let (facts, span) = work.arrives(CallId::new(gateway.ambient()), &asker);
        let story = Self {
            gateway: Arc::clone(gateway),
            asker,
            work,
            dialogue,
            facts,
            grant: None,
            intended: false,
            resumed,
        };
        (story, span)
    }

    /// In a task of its own: whoever hangs up, the record is written.
    async fn tell_to_its_end(mut self) {
        let answer = self.end().await;
        self.leave();
        self.dialogue.answer(answer).await;
    }

    /// The story, top to bottom.
    async fn end(&mut self) -> Answer {
        let started = Instant::now();
        // What cannot be recorded is not even begun.
        if !self.gateway.trail().is_ready() {
            return self.not_recorded(&Stop::NotRecorded, false);
        }
        let decided = match self.decide().await {
            Ok(decided) => self.resumed.use_up(&self.gateway).await.map(|()| decided),
            Err(stop) => Err(stop),
        };
        let may_write = matches!(&decided, Ok((target, _)) if self.work.may_write(target.facts()));
        // The intent of what may write is on record before it runs.
        let intended = if may_write {
            self.intend().await
        } else {
            Ok(())
        };
        let ending = match (intended, decided) {
            (Ok(()), Ok((target, grant))) => self.run_legs(&target, grant).await,
            (Ok(()), Err(stop)) | (Err(stop), _) => Err(stop),
        };
        // A record that did not take the intent would not take the outcome either.
        if let Err(stop @ Stop::NotRecorded) = &ending {
            return self.not_recorded(stop, false);
        }
        let outcome = self.outcome(&ending, started.elapsed());
        let is_hidden = matches!(&ending, Err(stop) if stop.is_hidden());
        self.work.report(&outcome, is_hidden);
        // While it is recorded, others can be worked on.
        let _recording_slot = self.done(&ending);
        let recorded = self.gateway.record_outcome(outcome, self.intended).await;
        match recorded {
            Ok(recorded) => self.release(recorded, ending),
            Err(_) if may_write => self.not_recorded(&Stop::Lost, false),
            Err(_) => self.not_recorded(&Stop::NotRecorded, is_hidden),
        }
    }

    /// How long what was done took tells how much there is to do.
    fn done(&mut self, ending: &Result<Ending<W::Given>, Stop>) -> Option<RecordingSlot> {
        let tool = self.facts.tool.as_ref().filter(|_| ending.is_ok())?;
        Some(self.asker.slot.take()?.done(tool.as_str()))
    }

    /// It takes no place any more, whatever came of it.
    fn leave(&mut self) {
        self.asker.slot = None;
    }

    /// Waits for `person`, and holds no place meanwhile.
    async fn wait_for<T>(slot: &mut Option<Slot>, person: impl Future<Output = T>) -> T {
        if let Some(slot) = slot {
            slot.pause();
        }
        let answered = person.await;
        if let Some(slot) = slot {
            slot.resume();
        }
        answered
    }

    /// Finds what is wanted, and what the policy says of that.
    async fn decide(&mut self) -> Result<(W::Target, Arc<Grant>), Stop> {
        if let Some(refusal) = self.work.agent_refusal() {
            let catalogue = self.gateway.catalogue().current();
            let find = |catalogue: &_| self.work.find(catalogue, &self.asker.view);
            if catalogue.as_deref().and_then(find).is_none() {
                // A model may write anything as a name, also what a person said.
                NOT_A_NAME.clone_into(&mut self.facts.requested_tool);
            }
            return Err(Stop::RefusedByAgent(refusal));
        }
        let (kind, message) = catalogue::NOT_KNOWN;
        let catalogue = self.gateway.catalogue().current();
        let catalogue = catalogue.ok_or(Stop::Failed { kind, message })?;
        let Some(target) = self.work.find(&catalogue, &self.asker.view) else {
            self.deny_unknown().await?;
            return Err(Stop::Unknown);
        };
        let facts = target.facts();
        self.facts.tool = Some(facts.name.clone());
        self.facts.definition_digest = Some(facts.definition_digest);
        Span::current().record(names::TOOL, facts.name.as_str());
        if !target.is_on(&self.asker.caller) {
            self.deny_unknown().await?;
            return Err(Stop::Disabled);
        }
        let grant = self.authorize(&target).await?;
        self.work.check(&target, &self.dialogue)?;
        let access = &self.asker.access;
        let applied = access.apply(&self.gateway, self.work.method(), target.facts());
        applied.map_err(Stop::Scope)?;
        Ok((target, grant))
    }

    async fn authorize(&mut self, target: &W::Target) -> Result<Arc<Grant>, Stop> {
        let started = Instant::now();
        let Asker {
            caller, client_ip, ..
        } = &self.asker;
        let arguments = self.work.arguments(target);
        let authority = self.gateway.authority();
        let asked = authority.authorize(caller, target.facts(), &arguments, client_ip);
        let answer = asked.await;
        stage("authorize", started.elapsed());
        match answer {
            Ok(Authorization::Allowed(grant)) => {
                self.facts.decided(&grant.decision);
                self.facts.permit_id = Some(grant.permit_id);
                self.grant = Some(Arc::clone(&grant));
                Ok(grant)
            }
            Ok(Authorization::Denied {
                decision,
                reason,
                visible,
            }) => {
                self.facts.decided(&decision);
                Err(Stop::Denied {
                    reason,
                    decision: decision.id,
                    visible,
                })
            }
            Err(error) => Err(self.undecided(&error)),
        }
    }

    /// Takes as long as the policy takes to deny what is hidden from the caller, so that time does not tell it from what
    /// there is not.
    async fn deny_unknown(&self) -> Result<(), Stop> {
        let Asker {
            caller, client_ip, ..
        } = &self.asker;
        let name = self.facts.requested_tool.as_str();
        let name = if name.parse::<ToolName>().is_ok() {
            name
        } else {
            UNNAMED
        };
        let authority = self.gateway.authority();
        let denied = authority.deny_unknown(caller, name, client_ip).await;
        denied.map_err(|error| self.undecided(&error))
    }

    fn undecided(&self, error: &CallError) -> Stop {
        let answer = self.gateway.undecided(error);
        match error.reason() {
            ErrorReason::TokenRefused => Stop::Scope(answer),
            _ => Stop::NotTaken(answer),
        }
    }

    /// Lets out a word before the outcome.
    pub(crate) async fn say(&mut self, notification: &str) -> Result<(), Stop> {
        self.before_words().await?;
        self.dialogue.say(notification).await;
        Ok(())
    }

    async fn before_words(&mut self) -> Result<(), Stop> {
        self.intend().await?;
        let (work, grant) = (&self.work, &self.grant);
        self.dialogue
            .stands_on(|| Basis::new(work.pack()?, grant.as_deref()?));
        Ok(())
    }

    /// Puts on record, once, that the call is about to do what cannot be taken back: to run what may write, or to let
    /// out a word before its outcome.
    async fn intend(&mut self) -> Result<(), Stop> {
        if !self.intended {
            let intent = Event::Intent(self.facts.clone());
            let appended = self.gateway.trail().append(intent).await;
            appended.map_err(|_| Stop::NotRecorded)?;
            self.intended = true;
        }
        Ok(())
    }

    /// Runs leg after leg: each ends where the client is waited for.
    async fn run_legs(
        &mut self,
        target: &W::Target,
        mut grant: Arc<Grant>,
    ) -> Result<Ending<W::Given>, Stop> {
        let Resumed {
            mut resumption,
            awaited,
            rounds,
            ..
        } = std::mem::take(&mut self.resumed);
        if let Some(awaited) = awaited {
            let answers = self.dialogue.answers(&awaited.asked);
            let responses = Self::wait_for(&mut self.asker.slot, answers).await;
            resumption = Some(Resumption {
                state: awaited.state,
                responses: responses.map_err(unanswered)?,
                task_step: None,
            });
            // It may have waited for long.
            grant = self.authorize(target).await?;
        }
        for round in rounds + 1..=MOST_ROUNDS + 1 {
            let waits = match self.run(target, &mut grant, resumption).await? {
                End::Given(given) => return Ok(Ending::Given(given)),
                End::InputRequired(_) if round > MOST_ROUNDS => break,
                End::InputRequired(waits) => waits,
            };
            let version = self.asker.version;
            let capabilities = self.dialogue.capabilities();
            let audience = Audience {
                version,
                capabilities: capabilities.as_deref(),
                // Where there is one server alone, nobody takes it for another.
                label: Some(target.label()).filter(|_| !self.asker.view.has_own_names()),
                ambient: self.gateway.ambient(),
            };
            let questions = Questions::read(&waits.requests, audience)?;
            if version.is_modern() {
                return self.ask_to_come_back(questions, waits, round);
            }
            let responses = if questions.is_empty() {
                Self::wait_for(&mut self.asker.slot, sleep(PACE)).await;
                Bytes::from_static(b"{}")
            } else {
                // What it is asked leaves before the outcome.
                self.before_words().await?;
                let work = self.work.pack();
                let onward = |asked: &Asked| {
                    let onward = Onward::new(work?, asked, &waits.state, round);
                    serde_json::to_vec(&onward).ok()
                };
                let asking = self.dialogue.ask(questions.as_json(), onward);
                let asked = Self::wait_for(&mut self.asker.slot, asking).await;
                asked.map_err(unanswered)?
            };
            resumption = Some(Resumption {
                state: waits.state,
                responses,
                task_step: None,
            });
            // It may have waited for long.
            grant = self.authorize(target).await?;
        }
        Err(Stop::Failed {
            kind: "too_many_rounds",
            message: "It asks for input again and again.",
        })
    }

    async fn run(
        &mut self,
        target: &W::Target,
        grant: &mut Arc<Grant>,
        resumption: Option<Resumption>,
    ) -> Result<End<W::Given>, Stop> {
        let started = Instant::now();
        let mut ran = W::run(self, target, grant, resumption.clone()).await;
        if let Err(Ran::PermitRefused) = ran {
            // The definition or the keys changed since the permit was kept: decide anew, once.
            let authority = self.gateway.authority();
            authority.forget(&self.asker.caller, target.facts());
            *grant = self.authorize(target).await?;
            ran = W::run(self, target, grant, resumption).await;
        }
        stage("run", started.elapsed());
        let end = ran?;
        let facts = match &end {
            End::Given(given) => given.facts(),
            End::InputRequired(waits) => &waits.facts,
        };
        for (name, spent) in &facts.stages {
            stage(&format!("run.{name}"), *spent);
        }
        Ok(end)
    }

    fn ask_to_come_back(
        &self,
        questions: Questions,
        waits: Box<InputRequired>,
        rounds: usize,
    ) -> Result<Ending<W::Given>, Stop> {
        let pending = Pending::new(&self.gateway, questions.keys(), &waits.state, rounds);
        let matter = self.work.matter();
        let state = matter.and_then(|matter| pending.seal(&self.gateway, &self.asker, matter));
        Ok(Ending::Asks {
            questions,
            state: state.ok_or(Stop::BAD_QUESTIONS)?,
            facts: waits.facts,
        })
    }

    /// What the record says of an ending.
    fn outcome(&self, ending: &Result<Ending<W::Given>, Stop>, duration: Duration) -> Outcome {
        let (status, reason, facts, result_digest) = match ending {
            Ok(Ending::Given(given)) => {
                let facts = given.facts();
                let (status, reason) = (facts.status, facts.error_kind.as_str());
                (status, reason, Some(facts), given.digest())
            }
            Ok(Ending::Asks {
                questions, facts, ..
            }) => {
                let digest = Digest::of(questions.as_json().as_bytes());
                (Status::Ok, "input_required", Some(facts), Some(digest))
            }
            Err(Stop::Unknown) => (Status::UnknownTool, W::UNKNOWN, None, None),
            Err(stop) => {
                let (status, reason) = stop.on_record();
                (status, reason, None, None)
            }
        };
        Outcome {
            call: self.facts.clone(),
            status,
            reason: reason.to_owned(),
            rows: facts.map_or(0, |facts| facts.rows),
            rows_withheld: facts.map_or(0, |facts| facts.rows_withheld),
            fields_redacted: facts.map_or(0, |facts| facts.fields_redacted),
            phi: facts.is_some_and(|facts| facts.phi),
            result_digest,
            duration,
        }
    }

    /// Lets the ending out, once it is on record.
    fn release(&self, recorded: Recorded, ending: Result<Ending<W::Given>, Stop>) -> Answer {
        let (id, call_id) = (&self.asker.id, self.facts.call_id);
        let stop = match ending {
            Ok(Ending::Given(given)) => return W::release(self, recorded, &given),
            Ok(Ending::Asks {
                questions, state, ..
            }) => {
                let meta = call_meta(call_id, recorded);
                return Answer::input_required(id, &questions, &state, &meta);
            }
            Err(stop) => stop,
        };
        W::stopped(self, recorded, &stop).unwrap_or_else(|| {
            let error = stop.error(|| self.work.not_there(self.asker.version));
            Answer::error(Some(id), &error.of_call(call_id, recorded.receipt()))
        })
    }

    fn not_recorded(&self, stop: &Stop, is_hidden: bool) -> Answer {
        measures::not_recorded(&self.facts, is_hidden);
        let error = stop.error(|| self.work.not_there(self.asker.version));
        let error = error
            .because("not_durable")
            .of_call(self.facts.call_id, None);
        Answer::error(Some(&self.asker.id), &error)
    }
}
