//! The client of one configured service, which adds headers and credentials to every request.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use url::Url;
use wardgate_domain::Ambient;
use wardgate_telemetry::trace_context;

use super::auth::{Auth, AuthSettings, OnBehalf};
use super::{Egress, EgressError, EgressRequest, EgressResponse, EgressSettings};

/// The settings of a client. Header values can be secrets, so the `Debug` output omits them.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// The allowed hosts and the limits of requests.
    pub egress: EgressSettings,
    /// The default headers of every request.
    pub headers: HeaderMap,
    /// The credentials of every request.
    pub auth: AuthSettings,
}

/// The settings of an HTTP service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// The URL of the service.
    pub url: Url,
    /// The settings of its client.
    pub client: ClientSettings,
    /// The credentials of requests that are made for no particular caller, such as lists, if `auth` represents the
    /// caller.
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

/// A client that keeps connections and tokens for later requests.
pub struct EgressClient {
    egress: Egress,
    headers: HeaderMap,
    auth: Auth,
}

impl EgressClient {
    /// Opens the client. It connects to nothing yet.
    pub fn open(settings: &ClientSettings, ambient: &Ambient) -> Result<Self, EgressError> {
        Ok(Self {
            egress: Egress::open(settings.egress.clone())?,
            headers: settings.headers.clone(),
            auth: Auth::open(&settings.auth, &settings.egress, ambient)?,
        })
    }

    /// Sends a request for `caller`, which matters only for credentials that represent the caller. If other credentials
    /// may help, the request is retried once.
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
