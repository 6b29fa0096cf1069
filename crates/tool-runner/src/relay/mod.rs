//! One HTTP exchange of a client, carried to an upstream MCP server as it stands, under a permit.
//!
//! ```text
//!   admit:  source ─▶ permit ─▶ message: covered? ─▶ AdmittedRelay      refused: nothing was sent
//!   run:    limits, breaker ─▶ carry ─▶ head ─▶ nothing ∣ body ∣ events, each by the rule ─▶ parts
//! ```
//!
//! The server gets the client's message byte for byte and nothing else of the client's: credentials are the
//! source's own, or what it has in the name of the caller. What the server says goes on byte for byte too, unless the permit restricts what the answer can
//! hold; [`rule`] says what becomes of it then.

mod governed;
mod message;
mod parts;
mod request;
mod rule;
mod run;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::OwnedSemaphorePermit;
use wardgate_domain::{CallFacts, CallId, CallToRun, Caller, ColumnClass, OfferKind, Timestamp};

use crate::Error;
use crate::execution_log::execution_facts;
use crate::loaded::{LoadedCatalogue, RunnableTool, Shared};
use crate::result::Stopwatch;
use crate::switchboard::Switches;
use wardgate_mcp_client::ToolFingerprint;
use wardgate_mcp_client::{Content, Outbound, Upstream};
use wardgate_resilience::SourceGuard;

pub use message::NotCarried;
pub(crate) use request::RelayCall;

use governed::GovernedRequest;
use message::{RequestedExchange, Subject};
use request::{Method, Offer};
use rule::Rule;

/// An exchange that may take place. Only [`admit`] makes one.
pub(crate) struct AdmittedRelay {
    id: CallId,
    caller: Caller,
    source: String,
    guard: Arc<SourceGuard>,
    /// The tool whose limits hold, where one is called.
    tool: Option<Arc<RunnableTool>>,
    outbound: Outbound,
    course: Course,
    /// What the record says of it; none of what uses nothing: a handshake, lists, notifications.
    execution: Option<CallFacts>,
    place: OwnedSemaphorePermit,
}

/// What it goes by once it is on its way.
struct Course {
    upstream: Arc<Upstream>,
    /// The server's name of the tool that is called, and its approved definition.
    pinned: Option<(String, Arc<ToolFingerprint>)>,
    /// None where the client listens as long as it likes.
    limit: Option<Duration>,
    /// The client waits for an answer to its message.
    asks: bool,
    /// A stream that ends before the answer may be taken up again.
    is_legacy: bool,
    version: Option<HeaderValue>,
    session: Option<HeaderValue>,
    rule: Rule,
}

impl RelayCall {
    /// Whether what it is for is on for its caller.
    pub(crate) fn is_on(&self, loaded: &LoadedCatalogue, switches: &Switches) -> bool {
        let switches = match &self.offer {
            Offer::Tool(name) => loaded.tool(name).map(|tool| tool.switches(switches)),
            Offer::Of(_) => Some(switches.of_source(&self.source)),
        };
        switches.is_some_and(|switches| switches.allow(&self.caller))
    }

    /// It hears whatever the server has to say, as long as the client likes.
    fn listens(&self) -> bool {
        matches!(self.method, Method::Get) && self.governed_id.is_none()
    }
}

impl AdmittedRelay {
    /// What the record says of it, where there is a record to be made here.
    pub(crate) fn execution(&self) -> Option<CallFacts> {
        self.execution.clone()
    }

    /// Whether it may change something.
    pub(crate) fn may_write(&self) -> bool {
        let tool = self.tool.as_ref();
        tool.is_some_and(|tool| !tool.tool.facts().read_only)
    }

    /// Whether it lasts as long as the client likes.
    pub(crate) fn is_endless(&self) -> bool {
        self.course.limit.is_none()
    }
}

/// Finds what the exchange is for and turns the signed permit into the right to it. `limit` holds where no tool says
/// how long it may take.
pub(crate) fn admit(
    call: RelayCall,
    loaded: &LoadedCatalogue,
    shared: &Shared,
    limit: Duration,
    now: Timestamp,
) -> Result<AdmittedRelay, Error> {
    let mut stopwatch = Stopwatch::start();
    let (upstream, guard) = loaded.server(&call.source).ok_or(Error::UnknownTool)?;
    let own = upstream.of(&call.caller, call.caller_token.as_deref());
    let upstream = own.map_err(|error| Error::HttpSource(error.to_string()))?;
    let offers = loaded.offers(&call.source).ok_or(Error::UnknownTool)?;
    let (tool, facts, classes, subject) = match &call.offer {
        Offer::Tool(name) => {
            let tool = loaded.tool(name).ok_or(Error::UnknownTool)?;
            let own_name = tool.tool.own_name_at(&call.source);
            let subject = Subject::Tool(own_name.ok_or(Error::UnknownTool)?);
            let classes = &tool.tool.result().classes;
            (Some(tool), tool.tool.facts(), classes, subject)
        }
        Offer::Of(kind) => {
            let facts = offers.facts(*kind).ok_or(Error::NoRoute)?;
            (None, facts, &offers.classes, Subject::Of(*kind))
        }
    };
    let listens = call.listens();
    let resumes = call.governed_id.is_some();
    let (content, asked) = match call.method {
        Method::Post(message) => message::read(&message, subject, &call.arguments)?,
        Method::Get => (Content::Get, RequestedExchange::default()),
        Method::Delete => (Content::Delete, RequestedExchange::default()),
    };
    let to_run = CallToRun {
        caller: &call.caller,
        tool: &facts.name,
        definition_digest: facts.definition_digest,
        arguments: asked.arguments.as_ref().unwrap_or(&call.arguments),
    };
    let signed = call.permit.ok_or(Error::NoPermit)?;
    let runnable = tool.map(AsRef::as_ref);
    let (permit, compiled) = loaded.compiled().admit(signed, to_run, runnable, now)?;
    if !upstream.is_over_http() {
        return Err(Error::NoRoute);
    }
    stopwatch.lap("permit");
    let recorded = shared.executions.is_some() && facts.kind != OfferKind::Connect;
    let execution = recorded
        .then(|| execution_facts(call.id, &call.caller, facts.kind, to_run.arguments, &permit));
    let called = tool.filter(|_| asked.id.is_some());
    let pinned = called.and_then(|tool| {
        let own_name = tool.tool.own_name()?.to_owned();
        Some((own_name, Arc::clone(tool.tool.pin()?)))
    });
    let governed = GovernedRequest {
        kind: facts.kind,
        permit,
        compiled,
        carried: facts.classes.clone(),
        classes: classes.clone(),
        unclassified: ColumnClass::unclassified(),
        stopwatch,
        counted: called.map(|tool| shared.platform.begin(tool.tool.facts().name.as_str())),
    };
    if let Some(why) = asked.unruled.filter(|_| governed.is_restricted()) {
        return Err(why.into());
    }
    let is_endless = listens || asked.listens;
    let asks = asked.id.is_some();
    let is_one_way = !(is_endless || asks || resumes);
    let place = shared.relays.take(is_one_way)?;
    // Whatever the gateway says, what a permit lets a client ask for is answered under that permit. A stream of changes
    // may end without an answer.
    let own_id = asked.id.filter(|_| !asked.listens);
    let governed_id = own_id.or(call.governed_id);
    Ok(AdmittedRelay {
        id: call.id,
        source: call.source,
        guard,
        tool: called.cloned(),
        course: Course {
            upstream,
            pinned,
            limit: (!is_endless).then(|| tool.map_or(limit, |tool| tool.time_limit)),
            asks,
            is_legacy: !asked.is_modern,
            version: call.version.clone(),
            session: call.session.clone(),
            rule: Rule::new(governed, governed_id, asked.progress_token, !listens),
        },
        caller: call.caller,
        outbound: Outbound {
            content,
            version: call.version,
            session: call.session,
            last_event: call.last_event,
            params: call.params,
            is_one_way,
        },
        execution,
        place,
    })
}
