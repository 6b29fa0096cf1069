//! The console: the state that all pages share.

use std::sync::Arc;

use wardgate_domain::{Ambient, Caller};
use wardgate_edge::{Admission, EdgeClient};

use crate::mcp::GatewayClient;
use crate::page_slots::PageSlots;
use crate::provider_sign_in::ProviderSignIn;
use crate::record::{Record, RecordLinks};
use crate::record_access::RecordAccess;
use crate::store::ConsoleStore;

/// The services that the console calls.
pub struct Links {
    /// The client of the gateway, which serves the tools.
    pub gateway: EdgeClient,
    /// The client of the agent, which serves the assistants, or `None` if there is no chat.
    pub agent: Option<EdgeClient>,
    /// The clients for the audit record, or `None` if the record is not shown.
    pub record: Option<RecordLinks>,
}

/// The console.
pub struct Console {
    pub(crate) gateway: GatewayClient,
    pub(crate) agent: Option<EdgeClient>,
    pub(crate) record: Option<Record>,
    pub(crate) admission: Admission,
    /// The origin at which browsers reach the console, `https://host` without a path, or `None` if it is not
    /// configured.
    pub(crate) origin: Option<String>,
    pub(crate) page_slots: PageSlots,
    pub(crate) store: Arc<ConsoleStore>,
    /// The sign-in by an identity provider, or `None` if people sign in with a token.
    pub(crate) sign_in: Option<Arc<ProviderSignIn>>,
    pub(crate) ambient: Ambient,
}

impl Console {
    /// Creates the console for the people that `admission` lets in. Results of calls and sessions are kept in `store`.
    /// `public_url` is the address at which browsers reach the console; if it is https, cookies are `Secure`.
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

    /// Returns which part of the record this person may read: nothing if the record is not linked or the policy service
    /// does not answer. The pages of the record report such a failure; the other pages do not need the record.
    pub(crate) async fn record_access(&self, caller: &Caller) -> RecordAccess {
        match &self.record {
            Some(record) => record.access(caller).await.unwrap_or(RecordAccess::None),
            None => RecordAccess::None,
        }
    }

    /// Returns whether browsers reach the console over https.
    pub(crate) fn is_secure(&self) -> bool {
        let origin = self.origin.as_deref();
        origin.is_some_and(|origin| origin.starts_with("https://"))
    }
}
