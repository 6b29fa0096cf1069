//! The second half: the code that the person brought back becomes tokens.

use wardgate_domain::Timestamp;

use super::Person;
use super::start::{PENDING, PendingGrant};
use super::tokens::Tokens;
use super::{ConnectError, UserGrants};
use crate::auth::code::{CodeRequest, check_issuer};

/// What the person came back with.
pub struct GrantCallback<'a> {
    /// Whose browser it was.
    pub person: &'a Person,
    /// As [`StartedGrant`](super::Started) had it.
    pub pending: Vec<u8>,
    /// What the server gave them.
    pub code: &'a str,
    /// Who sent them back, where that was said.
    pub issuer: Option<&'a str>,
}

impl UserGrants {
    /// Keeps the tokens. The code is good once, so whoever calls sees to it that this is done once.
    pub async fn finish(&self, back: GrantCallback<'_>) -> Result<(), ConnectError> {
        let key = self.key(back.person);
        let pending = self.store.unseal(&key.about(PENDING), back.pending);
        let pending = pending.map_err(|_| ConnectError::Lapsed)?;
        let pending: PendingGrant =
            serde_json::from_slice(&pending).map_err(|_| ConnectError::Lapsed)?;
        if self.now() >= Timestamp::from_micros(pending.until_micros) {
            return Err(ConnectError::Lapsed);
        }
        let asked = pending.at.issuer.as_deref();
        check_issuer(back.issuer, asked, pending.names_itself)?;
        let request = CodeRequest {
            redirect_uri: &pending.redirect_uri,
            verifier: &pending.verifier,
        };
        let mut form = request.form(back.code);
        let resource = pending.resource.as_deref();
        form.extend(resource.map(|resource| ("resource", resource)));
        let asked_at = self.now();
        let endpoint = self.endpoint(&pending.at, &pending.client_id)?;
        let granted = match endpoint.ask(&form).await {
            Ok(granted) => granted,
            Err(error) => {
                if error.is_of_client() {
                    self.forget(&pending).await;
                }
                return Err(error.into());
            }
        };
        let (at, client_id) = (pending.at, pending.client_id);
        let terms = (pending.resource, pending.scope);
        let tokens = Tokens::new(granted, at, client_id, terms, asked_at)?;
        Ok(self.store.connect(&key, &tokens.to_bytes()).await?)
    }

    /// The server may have forgotten a client that it registered itself, or be another by now. All persons share that
    /// client, so what only one of them brought back is no reason.
    async fn forget(&self, pending: &PendingGrant) {
        if let Some(issuer) = &pending.at.issuer {
            let about = self.registration(issuer, &pending.redirect_uri);
            // Otherwise it is looked at again next time.
            let _ = self.store.unregister_client(&about).await;
        }
        self.forget_facts().await;
    }
}
