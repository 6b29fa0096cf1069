//! The console: what its pages need.

use std::sync::Arc;

use wardgate_domain::{Ambient, Caller};
use wardgate_edge::{Admission, EdgeClient};

use crate::mcp::GatewayClient;
use crate::page_slots::PageSlots;
use crate::provider_sign_in::ProviderSignIn;
use crate::record::{Record, RecordLinks};
use crate::record_access::RecordAccess;
use crate::store::ConsoleStore;

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
    pub(crate) gateway: GatewayClient,
    pub(crate) agent: Option<EdgeClient>,
    pub(crate) record: Option<Record>,
    pub(crate) admission: Admission,
    /// Where browsers reach it, where that is configured: `https://host`, without a path.
    pub(crate) origin: Option<String>,
    pub(crate) page_slots: PageSlots,
    pub(crate) store: Arc<ConsoleStore>,
    /// None: people bring a token.
    pub(crate) sign_in: Option<Arc<ProviderSignIn>>,
    pub(crate) ambient: Ambient,
}

impl Console {
    /// Pages for whom `admission` lets in, with what came of calls and sessions in `store`. `public_url` is where browsers
    /// reach them; where that is https, so is the cookie.
    pub fn new(
        links: Links,
        admission: Admission,
        store: Arc<ConsoleStore>,
        sign_in: Option<ProviderSignIn>,
        public_url: Option<&str>,
        ambient: Ambient,
    ) -> Arc<Self> {
        let origin = public_url.and_then(|url| url::Url::parse(url).ok());
        Arc::new(Self {
            gateway: GatewayClient::new(links.gateway),
            agent: links.agent,
            record: links
                .record
                .map(|links| Record::new(links, ambient.clone())),
            admission,
            origin: origin.map(|url| url.origin().ascii_serialization()),
            page_slots: PageSlots::default(),
            store,
            sign_in: sign_in.map(Arc::new),
            ambient,
        })
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
