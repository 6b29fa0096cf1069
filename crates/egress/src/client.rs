//! The client of one configured service: its headers and its credentials on every request.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use url::Url;
use wardgate_domain::Ambient;
use wardgate_telemetry::trace_context;

use super::auth::{Auth, AuthSettings, OnBehalf};
use super::{Egress, EgressError, EgressRequest, EgressResponse, EgressSettings};

/// What a service is reached with. Header values can be secrets, so none is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// Where requests go, and within which limits.
    pub egress: EgressSettings,
    /// Put on every request that does not set its own.
    pub headers: HeaderMap,
    /// The credentials on every request.
    pub auth: AuthSettings,
}

/// An HTTP service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// Where it is.
    pub url: Url,
    /// What it is called with.
    pub client: ClientSettings,
    /// What is asked for nobody in particular, as lists are, is asked with these where `auth` stands for the caller.
    pub listing: AuthSettings,
}

impl std::fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSettings")
            .field("egress", &self.egress)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("auth", &self.auth)
            .finish()
    }
}

/// Keeps connections and tokens for the next request.
pub struct EgressClient {
    egress: Egress,
    headers: HeaderMap,
    auth: Auth,
}

impl EgressClient {
    /// Connects to nothing yet.
    pub fn open(settings: &ClientSettings, ambient: &Ambient) -> Result<Self, EgressError> {
        Ok(Self {
            egress: Egress::open(settings.egress.clone())?,
            headers: settings.headers.clone(),
            auth: Auth::open(&settings.auth, &settings.egress, ambient)?,
        })
    }

    /// Sends a request for `caller`, whom only credentials look at that stand for them. Where other credentials can
    /// do, it is tried once more.
    pub async fn send(
        &self,
        mut request: EgressRequest,
        caller: Option<OnBehalf<'_>>,
    ) -> Result<EgressResponse, EgressError> {
        for (name, value) in &self.headers {
            if !request.headers.contains_key(name) {
                request.headers.insert(name, value.clone());
            }
        }
        trace_context::inject(&mut request.headers);
        let Some(authorization) = self.auth.authorization(caller, None).await? else {
            return self.egress.send(request).await;
        };
        request.headers.insert(AUTHORIZATION, authorization.clone());
        if !self.auth.renews() {
            return self.egress.send(request).await;
        }
        let response = self.egress.send(request.clone()).await?;
        if !self
            .auth
            .may_do(caller, response.status, &response.headers)
            .await?
        {
            return Ok(response);
        }
        if let Some(renewed) = self
            .auth
            .authorization(caller, Some(&authorization))
            .await?
        {
            request.headers.insert(AUTHORIZATION, renewed);
        }
        self.egress.send(request).await
    }
}
