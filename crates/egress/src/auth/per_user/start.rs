//! The first half: where the person is sent, and what must be known when they come back.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use url::Url;
use wardgate_domain::Digest;

use super::Person;
use super::tokens::Registration;
use super::{ConnectError, UserGrants};
use crate::auth::AuthError;
use crate::auth::discovery::{MetadataDiscovery, ServerMetadata, canonical};
use crate::auth::server::union;

/// How long a person may take.
const OPEN_FOR: Duration = Duration::from_mins(10);

/// How long a replica believes what it found out.
const BELIEVED: Duration = Duration::from_mins(1);

/// The scope of a token that outlives the person's visit (`OpenID` Connect Core §11).
const OFFLINE: &str = "offline_access";

/// The metadata of the authorization server of a source.
pub(super) struct AuthorizationServer {
    pub(super) issuer: Option<String>,
    pub(super) authorization_url: Url,
    pub(super) token_url: Url,
    pub(super) registration_url: Option<Url>,
    pub(super) methods: Option<Vec<String>>,
    pub(super) takes_metadata_documents: bool,
    /// It says who it is when it sends the person back (RFC 9207).
    names_itself: bool,
    scope: Option<String>,
    resource: Option<String>,
}

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
        let challenge = URL_SAFE_NO_PAD.encode(Digest::of(verifier.as_bytes()).as_bytes());
        let mut url = facts.authorization_url.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", request.redirect_uri)
            .append_pair("state", request.state)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        let scope = self.scope(&facts, request.person, request.scope).await?;
        if let Some(scope) = &scope {
            url.query_pairs_mut().append_pair("scope", scope);
            if scope.split_ascii_whitespace().any(|it| it == OFFLINE) {
                // Servers leave it out otherwise.
                url.query_pairs_mut().append_pair("prompt", "consent");
            }
        }
        if let Some(resource) = &facts.resource {
            url.query_pairs_mut().append_pair("resource", resource);
        }
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
        let configured = settings.server.token_url.as_ref();
        if let Some((token_url, authorization_url)) =
            configured.zip(settings.authorization_url.as_ref())
        {
            return Ok(AuthorizationServer {
                issuer: settings.server.issuer.clone(),
                authorization_url: authorization_url.clone(),
                token_url: token_url.clone(),
                registration_url: None,
                methods: None,
                takes_metadata_documents: false,
                names_itself: false,
                scope: settings.scope.clone(),
                resource: settings.resource.clone(),
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
        facts(metadata, scope, resource)
    }
}

fn facts(
    metadata: ServerMetadata,
    scope: Option<String>,
    resource: String,
) -> Result<AuthorizationServer, ConnectError> {
    let methods = &metadata.code_challenge_methods_supported;
    if !methods.iter().any(|method| method == "S256") {
        return Err(ConnectError::NoPkce);
    }
    let authorization_url = metadata.authorization_endpoint.ok_or(AuthError::NotFound(
        "its metadata has no authorization_endpoint",
    ))?;
    Ok(AuthorizationServer {
        issuer: Some(metadata.issuer),
        authorization_url: authorization_url.0,
        token_url: metadata.token_endpoint.0,
        registration_url: metadata.registration_endpoint.map(|url| url.0),
        methods: metadata.token_endpoint_auth_methods_supported,
        takes_metadata_documents: metadata.client_id_metadata_document_supported,
        names_itself: metadata.authorization_response_iss_parameter_supported,
        scope,
        resource: Some(resource),
    })
}
