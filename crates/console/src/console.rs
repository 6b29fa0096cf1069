//! The console: what its pages need, and every path in one list.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use http::Method;
use wardgate_domain::{Ambient, Caller};
use wardgate_edge::{Admission, EdgeClient};

use crate::http::{open, signed_in, unknown};
use crate::mcp::Gateway;
use crate::page_slots::PageSlots;
use crate::record::{Record, RecordLinks};
use crate::record_access::RecordAccess;
use crate::results::ResultStore;
use crate::session::CookieKey;
use crate::{assets, chat, playground, profile, record_pages, sign_in, tools};

/// Whom the console calls.
pub struct Links {
    /// Where tools are.
    pub gateway: EdgeClient,
    /// Where assistants are. None: there is no chat.
    pub agent: Option<EdgeClient>,
    /// Where the record is. None: it is not shown.
    pub record: Option<RecordLinks>,
}

/// The pages.
pub struct Console {
    pub(crate) gateway: Gateway,
    pub(crate) agent: Option<EdgeClient>,
    pub(crate) record: Option<Record>,
    pub(crate) admission: Admission,
    pub(crate) key: CookieKey,
    /// Where browsers reach it, where that is configured: `https://host`, without a path.
    pub(crate) origin: Option<String>,
    pub(crate) page_slots: PageSlots,
    pub(crate) results: Arc<ResultStore>,
    pub(crate) ambient: Ambient,
}

const GET: &[Method] = &[Method::GET];
const POST: &[Method] = &[Method::POST];
const BOTH: &[Method] = &[Method::GET, Method::POST];

impl Console {
    /// Pages for whom `admission` lets in, with what came of calls in `results`. `public_url` is where browsers reach them; where that is https, so is the
    /// cookie.
    pub fn new(
        links: Links,
        admission: Admission,
        key: CookieKey,
        results: Arc<ResultStore>,
        public_url: Option<&str>,
        ambient: Ambient,
    ) -> Arc<Self> {
        let origin = public_url.and_then(|url| url::Url::parse(url).ok());
        Arc::new(Self {
            gateway: Gateway::new(links.gateway),
            agent: links.agent,
            record: links
                .record
                .map(|links| Record::new(links, ambient.clone())),
            admission,
            key,
            origin: origin.map(|url| url.origin().ascii_serialization()),
            page_slots: PageSlots::default(),
            results,
            ambient,
        })
    }

    /// The pages alone, to stand beside other paths. All they need is below `/console`.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/console", open(self, "home", GET, sign_in::home))
            .route("/console/", open(self, "home", GET, sign_in::home))
            .route(
                "/console/sign-in",
                open(self, "sign_in", BOTH, sign_in::page),
            )
            .route(
                "/console/sign-out",
                open(self, "sign_out", POST, sign_in::sign_out),
            )
            .route("/console/tools", signed_in(self, "tools", GET, tools::list))
            .route(
                "/console/tools/{name}",
                signed_in(self, "tool", BOTH, playground::page),
            )
            .route(
                "/console/calls/{id}",
                signed_in(self, "call", GET, playground::call),
            )
            .route("/console/chat", signed_in(self, "chat", GET, chat::page))
            .route(
                "/console/chat/message",
                signed_in(self, "chat_message", POST, chat::message),
            )
            .route(
                "/console/chat/approvals/{id}",
                signed_in(self, "chat_approval", POST, chat::approval),
            )
            .route(
                "/console/record",
                signed_in(self, "record", GET, record_pages::list),
            )
            .route(
                "/console/record.jsonl",
                signed_in(self, "record_download", GET, record_pages::download),
            )
            .route(
                "/console/record/{sequence}",
                signed_in(self, "record_entry", GET, record_pages::entry),
            )
            .route(
                "/console/policy",
                signed_in(self, "policy", GET, profile::page),
            )
            .route("/console/style.css", get(assets::style))
            .route("/console/chat.js", get(assets::script))
            .route("/console/icon.svg", get(assets::icon))
            .route("/console/{*rest}", open(self, "unknown", BOTH, unknown))
    }

    /// The pages on an address of their own, beside `probes`.
    pub fn alone(self: &Arc<Self>, probes: Router) -> Router {
        let elsewhere = open(self, "unknown", BOTH, unknown);
        let home = open(self, "home", GET, sign_in::home);
        self.router()
            .route("/", home)
            .merge(probes)
            .fallback_service(elsewhere)
    }

    /// What of the record this person may read. Nothing while it is not linked or the policy does not answer: the pages
    /// of the record say so, and the others do without it.
    pub(crate) async fn record_access(&self, caller: &Caller) -> RecordAccess {
        match &self.record {
            Some(record) => record.access(caller).await.unwrap_or(RecordAccess::None),
            None => RecordAccess::None,
        }
    }

    /// Whether browsers reach it over https.
    pub(crate) fn is_secure(&self) -> bool {
        let origin = self.origin.as_deref();
        origin.is_some_and(|origin| origin.starts_with("https://"))
    }
}
