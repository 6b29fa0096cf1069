//! The client of an OAuth token endpoint.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use url::{Url, form_urlencoded};
use wardgate_domain::Ambient;

use super::token::AccessToken;
use super::{AuthError, ClientKey, ClientProof, Secret, basic, bearer};
use crate::{Egress, EgressError, EgressRequest, EgressSettings};

pub(super) const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

const JWT_BEARER_ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Lifetime that is assumed for a token without `expires_in`.
const UNKNOWN_LIFETIME: Duration = Duration::from_mins(1);

/// Error codes that are safe to show: RFC 6749 §5.2, RFC 8693 §2.2.2 and RFC 8628 §3.5.
const ERROR_CODES: [&str; 11] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "invalid_target",
    "authorization_pending",
    "slow_down",
    "expired_token",
    "access_denied",
];

/// A token endpoint and the client that uses it.
pub(super) struct TokenEndpoint {
    egress: Egress,
    url: Url,
    client_id: String,
    proof: ClientAuthentication,
    ambient: Ambient,
}

/// The location of a token endpoint.
pub(super) struct EndpointLocation<'a> {
    pub(super) url: &'a Url,
    pub(super) issuer: Option<&'a str>,
    /// The authentication methods that the server supports, if its metadata lists them.
    pub(super) methods: Option<&'a [String]>,
}

/// The authentication of the client, ready to be sent.
enum ClientAuthentication {
    Basic(HeaderValue),
    Post(Secret),
    Assertion { key: ClientKey, audience: String },
    Nothing,
}

/// A successful response of a token endpoint.
#[derive(Deserialize)]
pub(super) struct TokenResponse {
    pub(super) access_token: String,
    pub(super) token_type: String,
    /// Lifetime in seconds. Some servers send the number as a string.
    expires_in: Option<Value>,
    pub(super) issued_token_type: Option<String>,
    pub(super) refresh_token: Option<String>,
    pub(super) id_token: Option<String>,
    pub(super) scope: Option<String>,
}

impl TokenEndpoint {
    /// Opens a client that reaches only the host of the endpoint, with the network limits of `limits`.
    pub(super) fn open(
        place: &EndpointLocation<'_>,
        client_id: &str,
        proof: &ClientProof,
        limits: &EgressSettings,
        ambient: &Ambient,
    ) -> Result<Self, EgressError> {
        let settings = limits.toward(place.url, limits.timeout, MAX_ANSWER_BYTES);
        Ok(Self {
            egress: Egress::open(settings)?,
            url: place.url.clone(),
            client_id: client_id.to_owned(),
            proof: ClientAuthentication::from_proof(place, client_id, proof)?,
            ambient: ambient.clone(),
        })
    }

    /// Sends a token request. `form` does not contain the parameters that authenticate the client.
    pub(super) async fn request_token(
        &self,
        form: &[(&str, &str)],
    ) -> Result<TokenResponse, AuthError> {
        serde_json::from_slice(&self.send_form(form).await?)
            .map_err(|_| AuthError::BadAnswer("is not JSON with access_token and token_type"))
    }

    /// Sends a request and returns the body of a successful response without parsing it.
    pub(super) async fn send_form(&self, form: &[(&str, &str)]) -> Result<Bytes, AuthError> {
        let response = self.egress.send(self.request(form)?).await;
        let response = response.map_err(AuthError::endpoint)?;
        let status = response.status;
        let body = response.body.bytes().await.map_err(AuthError::endpoint)?;
        if !status.is_success() {
            return Err(AuthError::Refused {
                status: status.as_u16(),
                code: error_code(&body),
            });
        }
        Ok(body)
    }

    /// Requests an access token that is used for `longest` at most.
    pub(super) async fn access_token(
        &self,
        form: &[(&str, &str)],
        longest: Option<Duration>,
    ) -> Result<AccessToken, AuthError> {
        let asked_at = self.ambient.now();
        let granted = self.request_token(form).await?;
        granted.check_bearer()?;
        let lifetime = granted.lifetime()?;
        let lifetime = longest.map_or(lifetime, |longest| lifetime.min(longest));
        Ok(AccessToken::new(
            bearer(&granted.access_token)?,
            asked_at,
            lifetime,
        ))
    }

    fn request(&self, form: &[(&str, &str)]) -> Result<EgressRequest, AuthError> {
        let mut request = EgressRequest::new(Method::POST, self.url.clone())
            .header(ACCEPT, HeaderValue::from_static("application/json"));
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(form);
        match &self.proof {
            ClientAuthentication::Basic(authorization) => {
                request = request.header(AUTHORIZATION, authorization.clone());
            }
            ClientAuthentication::Post(secret) => {
                body.append_pair("client_id", &self.client_id)
                    .append_pair("client_secret", secret.expose());
            }
            ClientAuthentication::Assertion { key, audience } => {
                let assertion = key.assertion(&self.client_id, audience, &self.ambient)?;
                body.append_pair("client_id", &self.client_id)
                    .append_pair("client_assertion_type", JWT_BEARER_ASSERTION)
                    .append_pair("client_assertion", &assertion);
            }
            ClientAuthentication::Nothing => {
                body.append_pair("client_id", &self.client_id);
            }
        }
        Ok(request.body("application/x-www-form-urlencoded", body.finish()))
    }
}

impl ClientAuthentication {
    fn from_proof(
        place: &EndpointLocation<'_>,
        client_id: &str,
        proof: &ClientProof,
    ) -> Result<Self, AuthError> {
        let has = |method| {
            let mut methods = place.methods.unwrap_or_default().iter();
            methods.any(|offered| offered == method)
        };
        Ok(match proof {
            ClientProof::Secret(secret)
                if has("client_secret_post") && !has("client_secret_basic") =>
            {
                Self::Post(secret.clone())
            }
            // Both parts are form-encoded first: RFC 6749 §2.3.1.
            ClientProof::Secret(secret) => Self::Basic(basic(
                &form_encoded(client_id),
                &form_encoded(secret.expose()),
            )?),
            ClientProof::Key { key, audience } => Self::Assertion {
                key: key.clone(),
                audience: audience
                    .as_deref()
                    .or(place.issuer)
                    .unwrap_or(place.url.as_str())
                    .to_owned(),
            },
            ClientProof::Nothing => Self::Nothing,
        })
    }
}

impl TokenResponse {
    /// Checks that the response contains a bearer access token.
    pub(super) fn check_bearer(&self) -> Result<(), AuthError> {
        if self.access_token.is_empty() {
            return Err(AuthError::BadAnswer("has an empty access_token"));
        }
        if !self.token_type.eq_ignore_ascii_case("bearer") {
            return Err(AuthError::BadAnswer("has a token_type other than Bearer"));
        }
        if let Some(issued) = &self.issued_token_type
            && issued != ACCESS_TOKEN
            && issued != JWT
        {
            return Err(AuthError::BadAnswer("is not an access token"));
        }
        Ok(())
    }

    pub(super) fn lifetime(&self) -> Result<Duration, AuthError> {
        Ok(self.stated_lifetime()?.unwrap_or(UNKNOWN_LIFETIME))
    }

    /// Returns the lifetime, or `None` if the response does not state it.
    pub(super) fn stated_lifetime(&self) -> Result<Option<Duration>, AuthError> {
        let seconds = match &self.expires_in {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.parse().ok(),
            Some(number) => number.as_u64(),
        };
        let lifetime = seconds.map(Duration::from_secs).map(Some);
        lifetime.ok_or(AuthError::BadAnswer(
            "has an expires_in that is not a number of seconds",
        ))
    }
}

fn form_encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn error_code(body: &[u8]) -> Option<&'static str> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let code = body.get("error")?.as_str()?;
    ERROR_CODES.into_iter().find(|known| *known == code)
}
