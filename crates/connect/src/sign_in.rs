//! The gateway as a client of the issuer that signs browsers' users in (`OpenID` Connect Core, code flow with PKCE).

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::{Client, Url};
use serde::Deserialize;
use tokio::sync::OnceCell;
use wardgate_domain::{Ambient, AttributeValue, Caller, Digest};
use wardgate_edge::{AuthConfig, Authenticator, IssuerConfig};

use crate::{Error, SignInConfig};

/// Of one request to the issuer.
const LIMIT: Duration = Duration::from_secs(10);

const MAX_ANSWER: usize = 256 * 1024;

/// A claim that no token has: what signs in has no rights.
const NO_ROLES: &str = "wardgate_no_roles";

/// Signs people in.
pub(crate) struct SignIn {
    issuer: String,
    client_id: String,
    secret: Option<String>,
    configured: Option<IssuerEndpoints>,
    found: OnceCell<IssuerEndpoints>,
    http: Client,
    /// Verifies identity tokens: of the issuer, for us.
    identities: Authenticator,
}

/// Where the issuer is talked to.
#[derive(Clone)]
struct IssuerEndpoints {
    authorization: Url,
    token: Url,
    /// It says who it is when it sends somebody back (RFC 9207).
    names_itself: bool,
}

/// Why somebody is not signed in. Nothing of what was sent is in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignInError {
    #[error("the issuer cannot be reached or used now: {0}")]
    Issuer(&'static str),
    #[error("the answer is not the issuer's for this visit")]
    Foreign,
}

/// What the issuer is asked with.
pub(crate) struct AuthorizationRequest<'a> {
    pub(crate) redirect_uri: &'a str,
    pub(crate) state: &'a str,
    pub(crate) nonce: &'a str,
    pub(crate) verifier: &'a str,
}

#[derive(Deserialize)]
struct IssuerMetadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

#[derive(Deserialize)]
struct TokenResponse {
    id_token: String,
}

impl SignIn {
    /// Reads the secret; asks the issuer for nothing but its keys.
    pub(crate) async fn open(
        config: &SignInConfig,
        auth: &AuthConfig,
        ambient: &Ambient,
    ) -> Result<Self, Error> {
        let wrong = |what: &str| Error::Config(format!("gateway.sign_in.{what}"));
        let trusted = auth.issuers.iter().find(|it| it.issuer == config.issuer);
        let trusted = trusted
            .ok_or_else(|| wrong("issuer: name one of gateway.auth.issuers, to the letter"))?;
        let secret = match &config.client_secret_file {
            None => None,
            Some(file) => {
                let read = tokio::fs::read_to_string(file).await;
                let read = read.map_err(|error| {
                    wrong(&format!(
                        "client_secret_file: {} cannot be read: {error}",
                        file.display()
                    ))
                })?;
                Some(read.trim_end_matches(['\r', '\n']).to_owned())
            }
        };
        let url = |text: &str, key: &str| {
            let url = Url::parse(text).ok();
            url.filter(|url| matches!(url.scheme(), "http" | "https"))
                .ok_or_else(|| wrong(&format!("{key}: `{text}` is no http(s) URL")))
        };
        let configured = match (&config.authorization_url, &config.token_url) {
            (None, None) => None,
            (Some(authorization), Some(token)) => Some(IssuerEndpoints {
                authorization: url(authorization, "authorization_url")?,
                token: url(token, "token_url")?,
                names_itself: false,
            }),
            _ => {
                return Err(wrong(
                    "authorization_url and token_url belong together: write both or neither",
                ));
            }
        };
        // Its identity tokens are for us, and give no rights.
        let identity = IssuerConfig {
            audience: Some(config.client_id.clone()),
            roles: None,
            tenant_claim: None,
            token_type: None,
            roles_claim: NO_ROLES.to_owned(),
            attributes: [("nonce".to_owned(), "nonce".to_owned())].into(),
            ..trusted.clone()
        };
        let identities = AuthConfig {
            issuers: vec![identity],
        };
        let http = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(LIMIT)
            .user_agent("wardgate")
            .build()
            .map_err(|error| wrong(&format!("issuer: no client for it: {error}")))?;
        Ok(Self {
            issuer: config.issuer.clone(),
            client_id: config.client_id.clone(),
            secret,
            configured,
            found: OnceCell::new(),
            http,
            identities: Authenticator::new(identities, None, ambient.clone()).await?,
        })
    }

    /// Where the browser goes.
    pub(crate) async fn question(
        &self,
        question: &AuthorizationRequest<'_>,
    ) -> Result<Url, SignInError> {
        let mut url = self.endpoints().await?.authorization.clone();
        let challenge = Digest::of(question.verifier.as_bytes());
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client_id)
            .append_pair("redirect_uri", question.redirect_uri)
            .append_pair("scope", "openid")
            .append_pair("state", question.state)
            .append_pair("nonce", question.nonce)
            .append_pair(
                "code_challenge",
                &URL_SAFE_NO_PAD.encode(challenge.as_bytes()),
            )
            .append_pair("code_challenge_method", "S256");
        Ok(url)
    }

    /// Who signed in, by the code they came back with and what `said_issuer` says of who sent them.
    pub(crate) async fn answer(
        &self,
        question: &AuthorizationRequest<'_>,
        code: &str,
        said_issuer: Option<&str>,
    ) -> Result<Arc<Caller>, SignInError> {
        let endpoints = self.endpoints().await?;
        let is_issuer = match said_issuer {
            Some(said) => said == self.issuer,
            None => !endpoints.names_itself,
        };
        if !is_issuer {
            return Err(SignInError::Foreign);
        }
        let answer: TokenResponse = self
            .json(self.redemption(endpoints, question, code))
            .await?;
        let bearer = HeaderValue::from_str(&format!("Bearer {}", answer.id_token));
        let bearer = bearer.map_err(|_| SignInError::Foreign)?;
        let headers = HeaderMap::from_iter([(AUTHORIZATION, bearer)]);
        let verified = self.identities.verify_request(&headers, &[]).await;
        let caller = verified.map_err(|_| SignInError::Foreign)?.caller;
        let nonce = caller.attributes().get("nonce");
        if nonce != Some(&AttributeValue::Text(question.nonce.to_owned())) {
            return Err(SignInError::Foreign);
        }
        Ok(caller)
    }

    fn redemption(
        &self,
        endpoints: &IssuerEndpoints,
        question: &AuthorizationRequest<'_>,
        code: &str,
    ) -> reqwest::RequestBuilder {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", question.redirect_uri)
            .append_pair("code_verifier", question.verifier);
        let request = self
            .http
            .post(endpoints.token.clone())
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "application/json");
        // Both parts are form-encoded first: RFC 6749 §2.3.1.
        let request = if let Some(secret) = &self.secret {
            request.basic_auth(encoded(&self.client_id), Some(encoded(secret)))
        } else {
            form.append_pair("client_id", &self.client_id);
            request
        };
        request.body(form.finish())
    }

    async fn endpoints(&self) -> Result<&IssuerEndpoints, SignInError> {
        match &self.configured {
            Some(configured) => Ok(configured),
            None => self.found.get_or_try_init(|| self.look()).await,
        }
    }

    async fn look(&self) -> Result<IssuerEndpoints, SignInError> {
        let issuer = self.issuer.trim_end_matches('/');
        let place = format!("{issuer}/.well-known/openid-configuration");
        let metadata: IssuerMetadata = self.json(self.http.get(place)).await?;
        if metadata.issuer != self.issuer {
            return Err(SignInError::Issuer("its metadata names another issuer"));
        }
        let is_plain = self.issuer.starts_with("http://");
        let url = |text: &str| {
            let url = Url::parse(text).ok();
            url.filter(|url| url.scheme() == "https" || is_plain)
                .ok_or(SignInError::Issuer("its metadata has no https URLs"))
        };
        Ok(IssuerEndpoints {
            authorization: url(&metadata.authorization_endpoint)?,
            token: url(&metadata.token_endpoint)?,
            names_itself: metadata.authorization_response_iss_parameter_supported,
        })
    }

    async fn json<T: serde::de::DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<T, SignInError> {
        let sent = request.send().await;
        let mut response = sent.map_err(|_| SignInError::Issuer("it does not answer"))?;
        if !response.status().is_success() {
            return Err(SignInError::Issuer("it refuses"));
        }
        let mut body = Vec::new();
        loop {
            let chunk = response.chunk().await;
            match chunk.map_err(|_| SignInError::Issuer("it broke off"))? {
                Some(chunk) if body.len() + chunk.len() <= MAX_ANSWER => body.extend(chunk),
                Some(_) => return Err(SignInError::Issuer("its answer is too large")),
                None => break,
            }
        }
        serde_json::from_slice(&body).map_err(|_| SignInError::Issuer("its answer cannot be read"))
    }
}

fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}
