//! Connections to a server whose credentials stand for the caller. Each person has a separate connection, so that no session, and
//! no state that a server keeps in one, is ever shared. If the credentials are derived from the caller's token, each token has a
//! separate connection: clients of the same person may have different rights, and a request without a token has no credentials.

use std::sync::Arc;

use quick_cache::sync::Cache;
use wardgate_domain::{Caller, Digest};
use wardgate_egress::{Auth, AuthSettings, BoundCredentials, EgressError, HttpSettings, OpenAuth};

use super::events::Events;
use super::{Transport, UpstreamError};

/// Maximum number of personal connections of one source.
const PERSONS: usize = 1_024;

/// A function that opens the connection of one person with the credentials in the transport.
type OpenPersonal<U> = fn(&Transport, Events) -> Result<U, EgressError>;

/// The personal connections of a source.
pub(super) struct PersonalConnections<U> {
    settings: HttpSettings,
    auth: Arc<Auth>,
    /// The events of the shared connection to the server.
    events: Arc<Events>,
    open: OpenPersonal<U>,
    persons: Cache<Digest, Arc<U>>,
}

impl<U> PersonalConnections<U> {
    /// Creates the personal connections of a source, or returns `None` if one connection serves all callers.
    pub(super) fn for_transport(
        transport: &Transport,
        events: &Arc<Events>,
        open: OpenPersonal<U>,
    ) -> Result<Option<Self>, EgressError> {
        let Transport::Http(settings) = transport else {
            return Ok(None);
        };
        if !settings.client.auth.stand_for_caller() {
            return Ok(None);
        }
        let auth = Auth::open(
            &settings.client.auth,
            &settings.client.egress,
            &events.ambient,
        )?;
        Ok(Some(Self {
            settings: HttpSettings::clone(settings),
            auth: Arc::new(auth),
            events: Arc::clone(events),
            open,
            persons: Cache::new(PERSONS),
        }))
    }

    /// Returns the transport of the shared connection, which has the credentials for listing.
    pub(super) fn shared_transport(&self) -> Transport {
        let mut settings = self.settings.clone();
        settings.client.auth = self.settings.listing.clone();
        Transport::Http(Box::new(settings))
    }

    /// Returns the caller's connection. `token` is the caller's token, which is used if the credentials are derived from it.
    pub(super) fn upstream(
        &self,
        caller: &Caller,
        token: Option<&str>,
    ) -> Result<Arc<U>, UpstreamError> {
        let token = token.filter(|_| self.settings.client.auth.exchange_token());
        let token_digest = token.map(|token| Digest::compute(token.as_bytes()));
        let person = caller.person();
        let key = match &token_digest {
            Some(token) => Digest::of_parts([person, *token].iter().map(|it| &it.as_bytes()[..])),
            None => person,
        };
        let upstream = self
            .persons
            .get_or_insert_with(&key, || self.open(caller, token))?;
        Ok(upstream)
    }

    /// Returns all open connections.
    pub(super) fn open_ones(&self) -> Vec<Arc<U>> {
        let persons = self.persons.iter();
        persons.map(|(_, upstream)| upstream).collect()
    }

    fn open(&self, caller: &Caller, token: Option<&str>) -> Result<Arc<U>, EgressError> {
        let bound = Arc::new(BoundCredentials::new(Arc::clone(&self.auth), caller, token));
        let mut settings = self.settings.clone();
        settings.client.auth = AuthSettings::Open(OpenAuth::Bound(bound));
        let transport = Transport::Http(Box::new(settings));
        let events = self.events.for_another_person();
        Ok(Arc::new((self.open)(&transport, events)?))
    }
}
