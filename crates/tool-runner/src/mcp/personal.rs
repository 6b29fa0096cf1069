//! A server whose credentials stand for the caller: each person has a connection of their own, so that no session, and
//! nothing that a server keeps in one, is ever shared.

use std::sync::Arc;

use quick_cache::sync::Cache;
use wardgate_domain::{Ambient, Caller, Digest};

use super::{Transport, Upstream, UpstreamError};
use crate::catalogue::HttpSettings;
use crate::egress::{Auth, AuthSettings, Bound, EgressError, OpenAuth};

/// How many persons' connections one source keeps.
const PERSONS: usize = 1_024;

/// The connections of a source, by person.
pub(super) struct Personal {
    name: String,
    settings: HttpSettings,
    auth: Arc<Auth>,
    ambient: Ambient,
    persons: Cache<Digest, (Arc<Bound>, Arc<Upstream>)>,
}

impl Personal {
    /// None where one connection serves everybody.
    pub(super) fn of(
        name: &str,
        transport: &Transport,
        ambient: &Ambient,
    ) -> Result<Option<Self>, EgressError> {
        let Transport::Http(settings) = transport else {
            return Ok(None);
        };
        if !settings.client.auth.stand_for_caller() {
            return Ok(None);
        }
        let auth = Auth::open(&settings.client.auth, &settings.client.egress, ambient)?;
        Ok(Some(Self {
            name: name.to_owned(),
            settings: HttpSettings::clone(settings),
            auth: Arc::new(auth),
            ambient: ambient.clone(),
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
    ) -> Result<Arc<Upstream>, UpstreamError> {
        let (bound, upstream) = self
            .persons
            .get_or_insert_with(&caller.person(), || self.open(caller))?;
        bound.renew(caller, token);
        Ok(upstream)
    }

    /// Every connection there is.
    pub(super) fn open_ones(&self) -> Vec<Arc<Upstream>> {
        let persons = self.persons.iter();
        persons.map(|(_, (_, upstream))| upstream).collect()
    }

    fn open(&self, caller: &Caller) -> Result<(Arc<Bound>, Arc<Upstream>), EgressError> {
        let bound = Arc::new(Bound::new(Arc::clone(&self.auth), caller));
        let mut settings = self.settings.clone();
        settings.client.auth = AuthSettings::Open(OpenAuth::Bound(Arc::clone(&bound)));
        let transport = Transport::Http(Box::new(settings));
        let upstream = Upstream::new(&self.name, &transport, &self.ambient)?;
        Ok((bound, Arc::new(upstream)))
    }
}
