//! The tools that a server offers to a client whose messages are carried to it as they stand. The client's session is its
//! own, so its list is asked for on that session before the first call of a pinned tool goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::HeaderValue;
use quick_cache::sync::Cache;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};
use wardgate_domain::Digest;

use super::definition::{self, Pages};
use super::era::Era;
use super::error::UpstreamError;
use super::events::Events;
use super::http::Dialer;
use super::http::carry::{Answer, Content, ForwardedResponse, Outbound};
use super::link::LIST_LIMIT;
use super::listing::{self, ConnectionTools, ListRequest, ListedTools};
use super::message::{self, Incoming};
use super::participation::{Participation, Profile};
use crate::fingerprint::ToolFingerprint;

/// Sessions of clients whose lists are kept, at one server.
const SESSIONS: usize = 4_096;

/// The first id of our own requests on a client's session. Clients count from small numbers.
const FIRST_ID: u64 = 1 << 52;

/// What the sessions of clients were found to offer.
pub(super) struct CarriedTools {
    sessions: Cache<Digest, Arc<ConnectionTools>>,
    next_id: AtomicU64,
}

impl CarriedTools {
    pub(super) fn new() -> Self {
        Self {
            sessions: Cache::new(SESSIONS),
            next_id: AtomicU64::new(FIRST_ID),
        }
    }

    /// Refuses the call in `outbound` where the server offers another tool as `name` than `pin` is of. Gives the server's
    /// answer, without its body, where the server refuses to list: it is the answer to the call too.
    pub(super) async fn check(
        &self,
        (name, pin): (&str, &ToolFingerprint),
        outbound: &Outbound,
        dialer: &Dialer,
        events: &Events,
    ) -> Result<Option<ForwardedResponse>, UpstreamError> {
        let tools = self.tools_of(outbound);
        let current = || {
            let listed = tools.current()?;
            let holds = listed.holds(events.tools_revision(), outbound.session.is_some());
            holds.then_some(listed)
        };
        let listed = if let Some(listed) = current() {
            listed
        } else {
            let _asking = tools.asking().await;
            if let Some(listed) = current() {
                listed
            } else {
                let listing = timeout(LIST_LIMIT, self.list(outbound, dialer, events)).await;
                let listing = listing.unwrap_or(Err(UpstreamError::Timeout));
                match listing.map_err(UpstreamError::before_any_request)? {
                    Listing::Refused(carried) => return Ok(Some(carried)),
                    Listing::Listed(listed) => tools.store(listed),
                }
                tools.current().ok_or(UpstreamError::ToolChanged)?
            }
        };
        if !listed.admits(name, pin) {
            events.tools_differ();
            return Err(UpstreamError::ToolChanged);
        }
        Ok(None)
    }

    /// Those of the session and version of that message.
    fn tools_of(&self, outbound: &Outbound) -> Arc<ConnectionTools> {
        let terms = [&outbound.version, &outbound.session];
        let terms = terms.map(|term| term.as_ref().map_or(&b""[..], HeaderValue::as_bytes));
        let digests = terms.map(Digest::of);
        let key = Digest::of_parts(digests.iter().map(|digest| &digest.as_bytes()[..]));
        let made: Result<_, std::convert::Infallible> = self
            .sessions
            .get_or_insert_with(&key, || Ok(Arc::default()));
        match made {
            Ok(tools) => tools,
        }
    }

    async fn list(
        &self,
        outbound: &Outbound,
        dialer: &Dialer,
        events: &Events,
    ) -> Result<Listing, UpstreamError> {
        let is_modern = matches!(
            outbound.content,
            Content::Post {
                repeats: Some(_),
                ..
            }
        );
        let era = if is_modern { Era::Modern } else { Era::Legacy };
        let asked = ListRequest {
            revision: events.tools_revision(),
            at: Instant::now(),
        };
        // A tool that the server has for certain clients only is to be found for whichever client calls it.
        let client = Participation::of_profile(Profile::ALL);
        let mut pages = Pages::new("tools/list", "tools");
        let server = loop {
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let message = pages.request().with(&client).encode(id, era, false)?;
            let repeats = is_modern.then(|| (HeaderValue::from_static("tools/list"), None));
            let carried = dialer.carry(Outbound {
                content: Content::Post {
                    message: message.into(),
                    repeats,
                },
                version: outbound.version.clone(),
                session: outbound.session.clone(),
                last_event: None,
                params: Vec::new(),
                is_one_way: false,
            });
            let carried = carried.await?;
            if !carried.status.is_success() {
                return Ok(Listing::Refused(ForwardedResponse {
                    answer: Answer::Nothing,
                    ..carried
                }));
            }
            let page = result_of(carried.answer, id).await?;
            if pages.take(&page)? {
                break listing::server_of(&page);
            }
        };
        let tools = definition::tools(events, pages.entries, true, true);
        Ok(Listing::Listed(ListedTools::new(&tools, asked, server)))
    }
}

/// How a server takes the request for its list.
enum Listing {
    Listed(ListedTools),
    Refused(ForwardedResponse),
}

/// The result of the request `id`, whichever way it comes.
async fn result_of(answer: Answer, id: u64) -> Result<Box<RawValue>, UpstreamError> {
    let none = UpstreamError::BadResult("it does not answer our request");
    match answer {
        Answer::Nothing => Err(none),
        Answer::Json(body) => result_in(&body, id)?.ok_or(none)?,
        Answer::Events(mut events) => loop {
            let Some(event) = events.next().await? else {
                return Err(none);
            };
            let data = Bytes::from(event.data);
            if !data.is_empty()
                && let Some(outcome) = result_in(&data, id)?
            {
                return outcome;
            }
        },
    }
}

type Outcome = Result<Box<RawValue>, UpstreamError>;

/// The outcome of the request `id`, where `text` is or holds it.
fn result_in(text: &[u8], id: u64) -> Result<Option<Outcome>, UpstreamError> {
    let messages = message::read(text).map_err(UpstreamError::BadResult)?;
    Ok(messages.into_iter().find_map(|message| match message {
        Incoming::Answer {
            id: Some(answered),
            outcome,
        } if answered == id => Some(outcome.map(ToOwned::to_owned)),
        _ => None,
    }))
}
