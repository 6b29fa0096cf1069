//! Asks an OAuth token endpoint for access tokens.

use std::time::Duration;

use http::Method;
use http::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use url::{Url, form_urlencoded};
use wardgate_domain::Ambient;

use super::token::AccessToken;
use super::{AuthError, CallerToken, ClientKey, ClientProof, OAuthClient, basic, bearer};
use crate::egress::{Egress, EgressError, EgressSettings, Request};

const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

const JWT_BEARER_ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// How long a token is kept that came without `expires_in`.
const UNKNOWN_LIFETIME: Duration = Duration::from_mins(1);

/// Error codes that are safe to show: RFC 6749 §5.2 and RFC 8693 §2.2.2.
const ERROR_CODES: [&str; 7] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "invalid_target",
];

/// The token endpoint as one client sees it.
pub(crate) struct TokenEndpoint {
    egress: Egress,
    url: Url,
    client_id: String,
    proof: Proof,
    scope: Option<String>,
    audience: Option<String>,
    ambient: Ambient,
}

/// How the client shows who it is, ready to be sent.
enum Proof {
    Basic(HeaderValue),
    Assertion { key: ClientKey, audience: String },
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    token_type: String,
    /// Seconds; some servers write them as a text.
    expires_in: Option<Value>,
    issued_token_type: Option<String>,
}

impl TokenEndpoint {
    pub(super) fn open(
        client: &OAuthClient,
        limits: &EgressSettings,
        ambient: &Ambient,
    ) -> Result<Self, EgressError> {
        let settings = EgressSettings::of(
            &client.token_url,
            [],
            limits.private.clone(),
            limits.timeout,
            MAX_ANSWER_BYTES,
        );
        Ok(Self {
            egress: Egress::open(settings)?,
            url: client.token_url.clone(),
            proof: Proof::of(client)?,
            client_id: client.client_id.clone(),
            scope: client.scope.clone(),
            audience: client.audience.clone(),
            ambient: ambient.clone(),
        })
    }

    pub(super) fn ambient(&self) -> &Ambient {
        &self.ambient
    }

    /// A token that stands for this client.
    pub(super) async fn own_token(&self) -> Result<AccessToken, AuthError> {
        self.ask(&[("grant_type", "client_credentials")], None)
            .await
    }

    /// A token that stands for the caller, good for no longer than the caller's own.
    pub(super) async fn exchange(&self, caller: CallerToken<'_>) -> Result<AccessToken, AuthError> {
        let form = [
            ("grant_type", TOKEN_EXCHANGE),
            ("subject_token", caller.token),
            ("subject_token_type", ACCESS_TOKEN),
            ("requested_token_type", ACCESS_TOKEN),
        ];
        let longest = caller.expires_at.since(self.ambient.now());
        self.ask(&form, Some(longest)).await
    }

    fn request(&self, form: &[(&str, &str)]) -> Result<Request, AuthError> {
        let mut request = Request::new(Method::POST, self.url.clone())
            .header(ACCEPT, HeaderValue::from_static("application/json"));
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(form);
        match &self.proof {
            Proof::Basic(authorization) => {
                request = request.header(AUTHORIZATION, authorization.clone());
            }
            Proof::Assertion { key, audience } => {
                let assertion = key.assertion(&self.client_id, audience, &self.ambient)?;
                body.append_pair("client_id", &self.client_id)
                    .append_pair("client_assertion_type", JWT_BEARER_ASSERTION)
                    .append_pair("client_assertion", &assertion);
            }
        }
        body.extend_pairs(self.scope.iter().map(|scope| ("scope", scope)));
        body.extend_pairs(self.audience.iter().map(|audience| ("audience", audience)));
        Ok(request.body("application/x-www-form-urlencoded", body.finish()))
    }

    async fn ask(
        &self,
        form: &[(&str, &str)],
        longest: Option<Duration>,
    ) -> Result<AccessToken, AuthError> {
        let asked_at = self.ambient.now();
        let response = self
            .egress
            .send(self.request(form)?)
            .await
            .map_err(endpoint)?;
        let status = response.status;
        let body = response.body.bytes().await.map_err(endpoint)?;
        if !status.is_success() {
            return Err(AuthError::Refused {
                status: status.as_u16(),
                code: error_code(&body),
            });
        }
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|_| AuthError::BadAnswer("is no JSON with access_token and token_type"))?;
        let lifetime = answer.check()?;
        let lifetime = longest.map_or(lifetime, |longest| lifetime.min(longest));
        Ok(AccessToken::new(
            bearer(&answer.access_token)?,
            asked_at,
            lifetime,
        ))
    }
}

impl Proof {
    fn of(client: &OAuthClient) -> Result<Self, AuthError> {
        Ok(match &client.proof {
            // Both parts are form-encoded first: RFC 6749 §2.3.1.
            ClientProof::Secret(secret) => Self::Basic(basic(
                &form_encoded(&client.client_id),
                &form_encoded(secret.expose()),
            )?),
            ClientProof::Key { key, audience } => Self::Assertion {
                key: key.clone(),
                audience: audience
                    .clone()
                    .unwrap_or_else(|| client.token_url.to_string()),
            },
        })
    }
}

impl Answer {
    /// Gives the token's lifetime.
    fn check(&self) -> Result<Duration, AuthError> {
        if self.access_token.is_empty() {
            return Err(AuthError::BadAnswer("has an empty access_token"));
        }
        if !self.token_type.eq_ignore_ascii_case("bearer") {
            return Err(AuthError::BadAnswer("has another token_type than Bearer"));
        }
        if let Some(issued) = &self.issued_token_type
            && issued != ACCESS_TOKEN
            && issued != JWT
        {
            return Err(AuthError::BadAnswer("is no access token"));
        }
        let seconds = match &self.expires_in {
            None | Some(Value::Null) => return Ok(UNKNOWN_LIFETIME),
            Some(Value::String(text)) => text.parse().ok(),
            Some(number) => number.as_u64(),
        };
        seconds.map(Duration::from_secs).ok_or(AuthError::BadAnswer(
            "has an expires_in that is no number of seconds",
        ))
    }
}

fn endpoint(error: EgressError) -> AuthError {
    AuthError::Endpoint(Box::new(error))
}

fn form_encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn error_code(body: &[u8]) -> Option<&'static str> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let code = body.get("error")?.as_str()?;
    ERROR_CODES.into_iter().find(|known| *known == code)
}
