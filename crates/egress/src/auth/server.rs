//! The authorization server of a source, and the tokens that one client requests there.

use std::sync::Arc;

use tokio::sync::Mutex;
use wardgate_domain::Ambient;

use super::client::OAuthClient;
use super::discovery::{MetadataDiscovery, ServerMetadata};
use super::grant::{ACCESS_TOKEN, EndpointLocation, TokenEndpoint};
use super::token::AccessToken;
use super::{AuthError, CallerToken};
use crate::{EgressError, EgressSettings};

pub(super) const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// A client with its token endpoint, which is discovered on first use unless it is configured.
pub(super) struct TokenEndpointClient {
    client: OAuthClient,
    limits: EgressSettings,
    ambient: Ambient,
    found: Mutex<Option<Arc<ResolvedServer>>>,
}

/// The token endpoint and the parameters of token requests.
pub(super) struct ResolvedServer {
    pub(super) endpoint: TokenEndpoint,
    /// The issuer of the server, if it is known.
    pub(super) issuer: Option<String>,
    scope: Option<String>,
    pub(super) audience: Option<String>,
    pub(super) resource: Option<String>,
}

impl TokenEndpointClient {
    /// Creates the client. It sends no request yet.
    pub(super) fn open(
        client: &OAuthClient,
        limits: &EgressSettings,
        ambient: &Ambient,
    ) -> Result<Self, EgressError> {
        let mut server = Self {
            client: client.clone(),
            limits: limits.clone(),
            ambient: ambient.clone(),
            found: Mutex::default(),
        };
        if let Some(url) = &client.server.token_url {
            let issuer = client.server.issuer.as_deref();
            let place = EndpointLocation {
                url,
                issuer,
                methods: None,
            };
            let found = server.at(&place, None, None)?;
            server.found = Mutex::new(Some(Arc::new(found)));
        }
        Ok(server)
    }

    pub(super) fn ambient(&self) -> &Ambient {
        &self.ambient
    }

    /// Requests a token that represents this client, with the additional scopes `wider`.
    pub(super) async fn own_token(&self, wider: String) -> Result<AccessToken, AuthError> {
        let found = self.resolve().await?;
        let scope = found.scope(&wider);
        let form = found.form(&[("grant_type", "client_credentials")], scope.as_deref());
        let granted = found.endpoint.access_token(&form, None).await;
        self.forget_if_refused(granted).await
    }

    /// Requests a token that represents the caller. It is not used for longer than the caller's own token.
    pub(super) async fn exchange(
        &self,
        caller: CallerToken<'_>,
        wider: String,
    ) -> Result<AccessToken, AuthError> {
        let found = self.resolve().await?;
        let scope = found.scope(&wider);
        let grant = [
            ("grant_type", TOKEN_EXCHANGE),
            ("subject_token", caller.token),
            ("subject_token_type", ACCESS_TOKEN),
            ("requested_token_type", ACCESS_TOKEN),
        ];
        let form = found.form(&grant, scope.as_deref());
        let longest = caller.expires_at.since(self.ambient.now());
        let granted = found.endpoint.access_token(&form, Some(longest)).await;
        self.forget_if_refused(granted).await
    }

    /// Returns whether tokens may be requested with additional scopes. A configured scope is never exceeded.
    pub(super) fn may_widen(&self) -> bool {
        self.client.scope.is_none()
    }

    /// Returns the endpoint, after discovery if necessary. Concurrent calls share one discovery.
    pub(super) async fn resolve(&self) -> Result<Arc<ResolvedServer>, AuthError> {
        let mut found = self.found.lock().await;
        if let Some(found) = &*found {
            return Ok(Arc::clone(found));
        }
        let looked = Arc::new(self.discover().await?);
        *found = Some(Arc::clone(&looked));
        Ok(looked)
    }

    /// Forgets a discovered endpoint after an error, because the server may have moved. The next request repeats the
    /// discovery.
    pub(super) async fn forget_if_refused<T>(
        &self,
        answer: Result<T, AuthError>,
    ) -> Result<T, AuthError> {
        if answer.is_err() && self.client.server.token_url.is_none() {
            self.found.lock().await.take();
        }
        answer
    }

    async fn discover(&self) -> Result<ResolvedServer, AuthError> {
        let settings = &self.client.server;
        let finder = MetadataDiscovery::new(&self.limits);
        let (issuer, protected) = match (&settings.issuer, &settings.service) {
            (Some(issuer), _) => (issuer.clone(), None),
            (None, Some(service)) => {
                let protected = finder.of_service(service).await?;
                (protected.issuer.clone(), Some(protected))
            }
            (None, None) => return Err(AuthError::NotFound("it is not configured")),
        };
        let metadata = finder.of_issuer(&issuer).await?;
        let (resource, scope) = protected.map_or((None, None), |protected| {
            (Some(protected.resource), protected.scope)
        });
        self.at(&EndpointLocation::from_metadata(&metadata), resource, scope)
            .map_err(AuthError::endpoint)
    }

    /// Combines the settings with the results of discovery. Settings take precedence.
    fn at(
        &self,
        place: &EndpointLocation<'_>,
        resource: Option<String>,
        scope: Option<String>,
    ) -> Result<ResolvedServer, EgressError> {
        let client = &self.client;
        Ok(ResolvedServer {
            endpoint: TokenEndpoint::open(
                place,
                &client.client_id,
                &client.proof,
                &self.limits,
                &self.ambient,
            )?,
            issuer: place.issuer.map(str::to_owned),
            scope: client.scope.clone().or(scope),
            audience: client.audience.clone(),
            resource: client.resource.clone().or(resource),
        })
    }
}

impl ResolvedServer {
    /// Returns the scopes of a token request.
    pub(super) fn scope(&self, wider: &str) -> Option<String> {
        union(self.scope.as_deref(), Some(wider))
    }

    /// Returns `grant` with the parameters that every token request of this source has.
    fn form<'a>(
        &'a self,
        grant: &[(&'a str, &'a str)],
        scope: Option<&'a str>,
    ) -> Vec<(&'a str, &'a str)> {
        let terms = [
            ("scope", scope),
            ("audience", self.audience.as_deref()),
            ("resource", self.resource.as_deref()),
        ];
        let terms = terms
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        grant.iter().copied().chain(terms).collect()
    }
}

impl<'a> EndpointLocation<'a> {
    fn from_metadata(metadata: &'a ServerMetadata) -> Self {
        Self {
            url: &metadata.token_endpoint.0,
            issuer: Some(&metadata.issuer),
            methods: metadata.token_endpoint_auth_methods_supported.as_deref(),
        }
    }
}

/// Returns the union of two scopes, in order and without duplicates.
pub(super) fn union(ones: Option<&str>, others: Option<&str>) -> Option<String> {
    let mut scopes: Vec<&str> = Vec::new();
    for scope in [ones, others]
        .into_iter()
        .flatten()
        .flat_map(str::split_ascii_whitespace)
    {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    (!scopes.is_empty()).then(|| scopes.join(" "))
}
