//! The first half of the authorization code flow: sends the person to the authorization server.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use url::Url;

use super::tokens::Registration;
use super::{Person, UserGrants};
use crate::auth::ConnectError;
use crate::auth::code::{AuthorizationServer, CodeRequest};
use crate::auth::discovery::{MetadataDiscovery, canonical};
use crate::auth::server::union;

/// Maximum time between the start and the end of a grant.
const OPEN_FOR: Duration = Duration::from_mins(10);

/// Time for which a replica caches the result of discovery.
const BELIEVED: Duration = Duration::from_mins(1);

/// The scope of a token that outlives the person's session (`OpenID` Connect Core §11).
const OFFLINE: &str = "offline_access";

/// The description of a grant that is shown to the person beforehand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantDescription {
    /// The host of the service.
    pub service: String,
    /// The host of the authorization server.
    pub server: String,
    /// The requested scopes, separated by spaces.
    pub scope: Option<String>,
}

/// The URL for the browser and the state of the pending grant.
pub struct StartedGrant {
    /// The URL to which the browser is sent.
    pub authorization_url: Url,
    /// The sealed state, which must be returned with the code.
    pub pending: Vec<u8>,
}

/// The state that must be known when the person returns. It is sealed for the person and this source.
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

/// The context under which a [`PendingGrant`] is sealed.
pub(super) const PENDING: &str = "connection pending";

/// A person's request for a grant.
pub struct GrantRequest<'a> {
    /// The person whose browser is sent to the server.
    pub person: &'a Person,
    /// The redirect URI to which the browser returns.
    pub redirect_uri: &'a str,
    /// The `state` parameter, which is returned with the code.
    pub state: &'a str,
    /// The URL of the client's metadata document, if it is publicly reachable.
    pub client_metadata_url: Option<&'a str>,
    /// Scopes in addition to those that are always requested.
    pub scope: Option<&'a str>,
}

impl UserGrants {
    /// Describes the grant: the server and the requested scopes.
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

    /// Starts a grant and returns the URL to which the person's browser is sent.
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
            // Without this prompt, some servers omit the refresh token.
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

    /// Returns the scopes to request, which include those that the person granted before.
    async fn scope(
        &self,
        facts: &AuthorizationServer,
        person: &Person,
        wider: Option<&str>,
    ) -> Result<Option<String>, ConnectError> {
        let held = self.load_tokens(person).await?;
        let held = held.and_then(|kept| kept.tokens.scope);
        let needed = union(facts.scope.as_deref(), wider);
        Ok(union(needed.as_deref(), held.as_deref()))
    }

    /// Returns the authorization server. The result of discovery is cached for [`BELIEVED`], or until something fails,
    /// because the service may then use another server.
    pub(super) async fn facts(&self) -> Result<Arc<AuthorizationServer>, ConnectError> {
        let mut known = self.facts.lock().await;
        if let Some((facts, until)) = &*known
            && self.now() < *until
        {
            return Ok(Arc::clone(facts));
        }
        let facts = Arc::new(self.resolve_server().await?);
        *known = Some((Arc::clone(&facts), self.now().plus(BELIEVED)));
        Ok(facts)
    }

    pub(super) async fn forget_facts(&self) {
        self.facts.lock().await.take();
    }

    /// Resolves the authorization server. Configured values take precedence over discovery.
    async fn resolve_server(&self) -> Result<AuthorizationServer, ConnectError> {
        let settings = &self.settings;
        if let Some(url) = settings.authorization_url.clone()
            && let Some(token_url) = settings.server.token_url.clone()
        {
            let issuer = settings.server.issuer.clone();
            return Ok(AuthorizationServer {
                scope: settings.scope.clone(),
                resource: settings.resource.clone(),
                ..AuthorizationServer::from_endpoints(issuer, url, token_url)
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
        // A server that supports `offline_access` issues refresh tokens only with this scope. It is not added if no
        // other scope is known, because it would then be the only scope of the request.
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
            ..AuthorizationServer::from_metadata(metadata)?
        })
    }
}
