//! The first half: where the person is sent, and what must be known when they come back.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use url::Url;

use super::Person;
use super::tokens::Registration;
use super::{ConnectError, UserGrants};
use crate::auth::code::{AuthorizationServer, CodeRequest};
use crate::auth::discovery::{MetadataDiscovery, canonical};
use crate::auth::server::union;

/// How long a person may take.
const OPEN_FOR: Duration = Duration::from_mins(10);

/// How long a replica believes what it found out.
const BELIEVED: Duration = Duration::from_mins(1);

/// The scope of a token that outlives the person's visit (`OpenID` Connect Core §11).
const OFFLINE: &str = "offline_access";

/// What a person is told before they agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantDescription {
    /// Host of the service.
    pub service: String,
    /// Host of the server that asks them.
    pub server: String,
    /// What they are asked for, separated by spaces.
    pub scope: Option<String>,
}

/// Where the person goes, and what is brought back with the code.
pub struct StartedGrant {
    /// Where the browser goes.
    pub authorization_url: Url,
    /// Sealed; brought back with the code.
    pub pending: Vec<u8>,
}

/// What must be known when the person comes back; it is sealed for them and this source.
#[derive(Serialize, Deserialize)]
pub(super) struct PendingGrant {
    pub(super) verifier: String,
    pub(super) redirect_uri: String,
    pub(super) at: Registration,
    pub(super) client_id: String,
    pub(super) resource: Option<String>,
    pub(super) scope: Option<String>,
    pub(super) names_itself: bool,
    pub(super) until_micros: i64,
}

/// How [`PendingGrant`] is sealed.
pub(super) const PENDING: &str = "connection pending";

/// The request of a person for a grant.
pub struct GrantRequest<'a> {
    /// Whose browser it is.
    pub person: &'a Person,
    /// Where the person comes back to.
    pub redirect_uri: &'a str,
    /// Comes back with the code.
    pub state: &'a str,
    /// Where we describe ourselves, if that can be read from everywhere.
    pub client_metadata_url: Option<&'a str>,
    /// Scopes besides those that are always asked for.
    pub scope: Option<&'a str>,
}

impl UserGrants {
    /// What the person is asked for, and where.
    pub async fn describe(
        &self,
        person: &Person,
        wider: Option<&str>,
    ) -> Result<GrantDescription, ConnectError> {
        let facts = self.facts().await?;
        let host = |url: &Url| url.host_str().unwrap_or_default().to_owned();
        Ok(GrantDescription {
            service: host(&self.service),
            server: host(&facts.authorization_url),
            scope: self.scope(&facts, person, wider).await?,
        })
    }

    /// Where to send the person's browser.
    pub async fn start(&self, request: GrantRequest<'_>) -> Result<StartedGrant, ConnectError> {
        let facts = self.facts().await?;
        let client = self.client(&facts, &request).await?;
        let verifier = URL_SAFE_NO_PAD.encode(self.ambient.random::<32>());
        let code = CodeRequest {
            redirect_uri: request.redirect_uri,
            verifier: &verifier,
        };
        let scope = self.scope(&facts, request.person, request.scope).await?;
        let scopes = scope.as_deref().unwrap_or_default();
        let is_offline = scopes.split_ascii_whitespace().any(|it| it == OFFLINE);
        let further = [
            ("scope", scope.as_deref()),
            // Servers leave out the refresh token otherwise.
            ("prompt", is_offline.then_some("consent")),
            ("resource", facts.resource.as_deref()),
        ];
        let further = further
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let url = code.url(&facts.authorization_url, &client.id, request.state, further);
        let pending = PendingGrant {
            verifier,
            redirect_uri: request.redirect_uri.to_owned(),
            at: Registration {
                issuer: facts.issuer.clone(),
                token_url: facts.token_url.to_string(),
                methods: facts.methods.clone(),
                secret: client.secret,
            },
            client_id: client.id,
            resource: facts.resource.clone(),
            scope,
            names_itself: facts.names_itself,
            until_micros: self.now().plus(OPEN_FOR).as_micros(),
        };
        let plain = serde_json::to_vec(&pending).map_err(|_| ConnectError::Lapsed)?;
        let about = self.key(request.person).about(PENDING);
        Ok(StartedGrant {
            authorization_url: url,
            pending: self.store.seal(&about, &plain)?,
        })
    }

    /// What the person is asked for: never less than they granted before.
    async fn scope(
        &self,
        facts: &AuthorizationServer,
        person: &Person,
        wider: Option<&str>,
    ) -> Result<Option<String>, ConnectError> {
        let held = self.kept(person).await?;
        let held = held.and_then(|kept| kept.tokens.scope);
        let needed = union(facts.scope.as_deref(), wider);
        Ok(union(needed.as_deref(), held.as_deref()))
    }

    /// What was found out is believed for a while, or until something fails: the service may trust another server then.
    pub(super) async fn facts(&self) -> Result<Arc<AuthorizationServer>, ConnectError> {
        let mut known = self.facts.lock().await;
        if let Some((facts, until)) = &*known
            && self.now() < *until
        {
            return Ok(Arc::clone(facts));
        }
        let facts = Arc::new(self.look().await?);
        *known = Some((Arc::clone(&facts), self.now().plus(BELIEVED)));
        Ok(facts)
    }

    pub(super) async fn forget_facts(&self) {
        self.facts.lock().await.take();
    }

    /// What is configured wins.
    async fn look(&self) -> Result<AuthorizationServer, ConnectError> {
        let settings = &self.settings;
        if let Some(url) = settings.authorization_url.clone()
            && let Some(token_url) = settings.server.token_url.clone()
        {
            let issuer = settings.server.issuer.clone();
            return Ok(AuthorizationServer {
                scope: settings.scope.clone(),
                resource: settings.resource.clone(),
                ..AuthorizationServer::configured(issuer, url, token_url)
            });
        }
        let finder = MetadataDiscovery::new(&self.limits);
        let (issuer, protected) = if let Some(issuer) = &settings.server.issuer {
            (issuer.clone(), None)
        } else {
            let protected = finder.of_service(&self.service).await?;
            (protected.issuer.clone(), Some(protected))
        };
        let metadata = finder.of_issuer(&issuer).await?;
        let (resource, scope) = match protected {
            Some(protected) => (protected.resource, protected.scope),
            None => (canonical(&self.service), None),
        };
        let resource = settings.resource.clone().unwrap_or(resource);
        // A server that has a scope for refresh tokens gives none without it; by itself it would be all that is asked for.
        let has_offline = metadata.scopes_supported.iter().any(|it| it == OFFLINE);
        let scope = match scope {
            Some(scope) if has_offline => union(Some(&scope), Some(OFFLINE)),
            scope => scope,
        };
        let scope = settings.scope.clone().or(scope);
        let methods = &metadata.code_challenge_methods_supported;
        if !methods.iter().any(|method| method == "S256") {
            return Err(ConnectError::NoPkce);
        }
        Ok(AuthorizationServer {
            scope,
            resource: Some(resource),
            ..AuthorizationServer::found(metadata)?
        })
    }
}
