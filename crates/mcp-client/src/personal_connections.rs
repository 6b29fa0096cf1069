//! A server whose credentials stand for the caller: each person has a connection of their own, so that no session, and
//! nothing that a server keeps in one, is ever shared. Where the credentials are made of the caller's token, so has each
//! token: what one client of a person may do is no other's, and a request without a token has no credentials.

use std::sync::Arc;

use quick_cache::sync::Cache;
use wardgate_domain::{Caller, Digest};
use wardgate_egress::{Auth, AuthSettings, BoundCredentials, EgressError, HttpSettings, OpenAuth};

use super::events::Events;
use super::{Transport, UpstreamError};

/// How many persons' connections one source keeps.
const PERSONS: usize = 1_024;

/// Opens the connection of one person, whose credentials the transport has.
type OpenPersonal<U> = fn(&Transport, Events) -> Result<U, EgressError>;

/// The connections of a source, by person.
pub(super) struct PersonalConnections<U> {
    settings: HttpSettings,
    auth: Arc<Auth>,
    /// Of the server as nobody in particular reaches it.
    events: Arc<Events>,
    open: OpenPersonal<U>,
    persons: Cache<Digest, Arc<U>>,
}

impl<U> PersonalConnections<U> {
    /// None where one connection serves everybody.
    pub(super) fn of(
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

    /// How the server is reached for nobody in particular.
    pub(super) fn shared(&self) -> Transport {
        let mut settings = self.settings.clone();
        settings.client.auth = self.settings.listing.clone();
        Transport::Http(Box::new(settings))
    }

    /// The caller's own. `token` is what the caller called with, where the credentials are made of it.
    pub(super) fn upstream(
        &self,
        caller: &Caller,
        token: Option<&str>,
    ) -> Result<Arc<U>, UpstreamError> {
        let token = token.filter(|_| self.settings.client.auth.exchange_token());
        let token_digest = token.map(|token| Digest::of(token.as_bytes()));
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

    /// Every connection there is.
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
