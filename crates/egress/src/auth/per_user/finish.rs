//! The second half of the authorization code flow: exchanges the code that the person brought back for tokens.

use wardgate_domain::Timestamp;

use super::start::{PENDING, PendingGrant};
use super::tokens::Tokens;
use super::{Person, UserGrants};
use crate::auth::ConnectError;
use crate::auth::code::{CodeRequest, check_issuer};

/// The response with which a person returned from the authorization server.
pub struct GrantCallback<'a> {
    /// The person whose browser returned.
    pub person: &'a Person,
    /// The sealed state of [`StartedGrant`](super::StartedGrant).
    pub pending: Vec<u8>,
    /// The authorization code.
    pub code: &'a str,
    /// The issuer in the response, if there is one.
    pub issuer: Option<&'a str>,
}

impl UserGrants {
    /// Exchanges the code for tokens and stores them. The caller must call this only once for each code, because a code
    /// is valid once.
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
        let granted = match endpoint.request_token(&form).await {
            Ok(granted) => granted,
            Err(error) => {
                if error.is_of_client() {
                    self.forget(&pending).await;
                }
                return Err(error.into());
            }
        };
        let tokens = Tokens::new(
            granted,
            pending.at,
            pending.client_id,
            pending.resource,
            pending.scope,
            asked_at,
        )?;
        Ok(self.store.connect(&key, &tokens.to_bytes()).await?)
    }

    /// Forgets the registered client, because the server may not know it any more, or may have been replaced. The
    /// client in the store is shared by all persons, so it is only forgotten after the server rejected it.
    async fn forget(&self, pending: &PendingGrant) {
        if let Some(issuer) = &pending.at.issuer {
            let about = self.registration(issuer, &pending.redirect_uri);
            // If this fails, the client is rejected and forgotten again the next time.
            let _ = self.store.unregister_client(&about).await;
        }
        self.forget_facts().await;
    }
}
