//! Fake identity providers that behave to an OAuth client like the real products of that name. Each checks every
//! parameter that it receives, and none offers dynamic client registration.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use wardgate_domain::Ambient;

use crate::{TestKey, base64url};

/// The client ID of the gateway at every provider.
const CLIENT: &str = "b7c0ffee-0000-4000-8000-00000000cafe";
const SECRET: &str = "the secret: of a gateway";

/// Lifetime of an access token, in seconds.
const LIFETIME: i64 = 3_600;

/// The product that a fake provider behaves like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderKind {
    /// Puts roles into `realm_access`, sends `iss` (RFC 9207), refuses anonymous registration and ignores `resource`.
    Keycloak,
    /// Encrypts access tokens without `audience`, rotates refresh tokens and has an issuer that ends with a slash.
    Auth0,
    /// Has its metadata below the path of the authorization server, sends scopes as an array and refuses unknown scopes.
    Okta,
    /// Refuses `resource` and scopes without its prefix, issues a token for another API without a scope of this one,
    /// and has metadata without PKCE.
    Entra,
    /// Issues opaque access tokens, and one refresh token in response to two parameters instead of a scope.
    Google,
}

/// What a code or a refresh token was issued for.
#[derive(Clone)]
struct ProviderGrant {
    person: String,
    challenge: String,
    redirect_uri: String,
    scope: String,
    audience: Option<String>,
    offline: bool,
}

#[derive(Default)]
struct ProviderState {
    redirect_uris: Vec<String>,
    codes: HashMap<String, ProviderGrant>,
    refresh_tokens: HashMap<String, ProviderGrant>,
    person: String,
    requests: Vec<(String, HashMap<String, String>)>,
    counter: usize,
    is_away: bool,
    says_issuer: Option<String>,
}

/// A provider on loopback, which signs every user in as the person that the test set last.
pub struct FakeIdentityProvider {
    kind: ProviderKind,
    address: SocketAddr,
    key: TestKey,
    ambient: Ambient,
    state: Mutex<ProviderState>,
}

impl FakeIdentityProvider {
    /// Starts a provider that signs `ann` in. The times in its tokens are those of `ambient`.
    pub async fn start(kind: ProviderKind, ambient: Ambient) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let state = ProviderState {
            person: "ann".to_owned(),
            ..ProviderState::default()
        };
        let provider = Arc::new(Self {
            kind,
            address: listener.local_addr().expect("an address"),
            key: TestKey::rsa(),
            ambient,
            state: Mutex::new(state),
        });
        let serving = Arc::clone(&provider);
        let router = Router::new().fallback(async move |request| serving.serve(request).await);
        tokio::spawn(async move { axum::serve(listener, router).await });
        provider
    }

    /// Returns the exact issuer identifier.
    pub fn issuer(&self) -> String {
        let path = match self.kind {
            ProviderKind::Keycloak => "/realms/hospital",
            ProviderKind::Auth0 => "/",
            ProviderKind::Okta => "/oauth2/default",
            ProviderKind::Entra => "/0ca7e6-tenant/v2.0",
            ProviderKind::Google => "",
        };
        format!("http://{}{path}", self.address)
    }

    /// Returns the entry of `gateway.auth.issuers` for this provider.
    pub fn trust(&self) -> Value {
        let (audience, roles_claim) = match self.kind {
            ProviderKind::Keycloak => (CLIENT, "realm_access.roles"),
            ProviderKind::Auth0 => ("https://mcp.example/", "https://hospital.example/roles"),
            ProviderKind::Okta => ("api://default", "groups"),
            ProviderKind::Entra => (CLIENT, "roles"),
            ProviderKind::Google => (CLIENT, "hd"),
        };
        json!({ "issuer": self.issuer(), "audience": audience, "roles_claim": roles_claim })
    }

    /// Returns the section `gateway.authorization` for this provider, and writes the client secret into `directory`.
    pub fn authorization(&self, directory: &Path) -> Value {
        let secret = directory.join("provider.secret");
        std::fs::write(&secret, format!("{SECRET}\n")).expect("a file to write to");
        let mut section = json!({
            "issuer": self.issuer(),
            "client_id": CLIENT,
            "client_secret_file": secret,
        });
        let own = match self.kind {
            ProviderKind::Keycloak => json!({
                "preset": "keycloak", "scopes": ["openid", "mcp"], "optional_scopes": ["mcp.write"],
            }),
            ProviderKind::Auth0 => json!({
                "preset": "auth0", "audience": "https://mcp.example/",
                "scopes": ["openid", "offline_access", "mcp"], "optional_scopes": ["mcp.write"],
            }),
            ProviderKind::Okta => json!({
                "preset": "okta",
                "scopes": ["openid", "offline_access", "mcp"], "optional_scopes": ["mcp.write"],
            }),
            ProviderKind::Entra => json!({
                "preset": "entra", "scope_prefix": format!("api://{CLIENT}/"),
                "scopes": ["openid", "offline_access", "mcp"], "optional_scopes": ["mcp.write"],
            }),
            ProviderKind::Google => json!({ "preset": "google" }),
        };
        let own = own.as_object().expect("an object").clone();
        section.as_object_mut().expect("an object").extend(own);
        section
    }

    /// Returns whether access tokens of this provider name their scopes.
    pub fn has_scopes(&self) -> bool {
        self.kind != ProviderKind::Google
    }

    /// Registers a redirect URI of the gateway.
    pub fn allow_redirect(&self, uri: &str) {
        self.state().redirect_uris.push(uri.to_owned());
    }

    /// Sets the person who is signed in from now on. `nobody` refuses consent.
    pub fn sign_in_as(&self, person: &str) {
        person.clone_into(&mut self.state().person);
    }

    /// Sets whether token requests are answered with 503 from now on.
    pub fn set_away(&self, is_away: bool) {
        self.state().is_away = is_away;
    }

    /// Makes the provider send this `iss` in redirects to the client.
    pub fn say_issuer(&self, issuer: &str) {
        self.state().says_issuer = Some(issuer.to_owned());
    }

    /// Revokes every refresh token, as an administrator does.
    pub fn end_sessions(&self) {
        self.state().refresh_tokens.clear();
    }

    /// Returns the number of valid refresh tokens.
    pub fn sessions(&self) -> usize {
        self.state().refresh_tokens.len()
    }

    /// Returns the parameters of each request so far whose path ends with `path`.
    pub fn requests(&self, path: &str) -> Vec<HashMap<String, String>> {
        let state = self.state();
        let of_path = state.requests.iter().filter(|(at, _)| at.ends_with(path));
        of_path.map(|(_, parameters)| parameters.clone()).collect()
    }

    fn state(&self) -> MutexGuard<'_, ProviderState> {
        self.state.lock().expect("no test panicked with it")
    }

    async fn serve(&self, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        if Some(&*path)
            == Url::parse(&self.metadata_url())
                .ok()
                .as_ref()
                .map(Url::path)
        {
            return axum_json(StatusCode::OK, &self.metadata());
        }
        let body = to_bytes(body, 1 << 20).await.unwrap_or_default();
        let text = match parts.uri.query() {
            Some(query) => query.to_owned(),
            None => String::from_utf8_lossy(&body).into_owned(),
        };
        let parameters = parse(&text);
        let name = path.rsplit('/').next().unwrap_or_default();
        if matches!(name, "authorize" | "token" | "revoke") {
            self.state()
                .requests
                .push((path.clone(), parameters.clone()));
        }
        match name {
            "keys" => axum_json(StatusCode::OK, &json!({ "keys": [self.key.jwk("1")] })),
            "authorize" => self.authorize(&parameters),
            "token" if self.state().is_away => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            "token" => match self.token(&parts.headers, &parameters) {
                Ok(tokens) => axum_json(StatusCode::OK, &tokens),
                Err(error) => axum_json(StatusCode::BAD_REQUEST, &json!({ "error": error })),
            },
            "revoke" => {
                let token = parameters.get("token").cloned().unwrap_or_default();
                self.state().refresh_tokens.remove(&token);
                StatusCode::OK.into_response()
            }
            // This is the refusal of anonymous registration by Keycloak, and that of Okta without an API token.
            "register" => axum_json(
                StatusCode::FORBIDDEN,
                &json!({ "error": "insufficient_scope", "error_description": "Host not trusted." }),
            ),
            _ => StatusCode::NOT_FOUND.into_response(),
        }
    }

    /// Returns the URL of the only metadata document.
    fn metadata_url(&self) -> String {
        let issuer = self.issuer();
        let issuer = issuer.trim_end_matches('/');
        format!("{issuer}/.well-known/openid-configuration")
    }

    fn metadata(&self) -> Value {
        let base = match self.kind {
            ProviderKind::Keycloak => "/realms/hospital/protocol/openid-connect",
            ProviderKind::Auth0 | ProviderKind::Google => "",
            ProviderKind::Okta => "/oauth2/default/v1",
            ProviderKind::Entra => "/0ca7e6-tenant/oauth2/v2.0",
        };
        let at = |name: &str| format!("http://{}{base}/{name}", self.address);
        let mut metadata = json!({
            "issuer": self.issuer(),
            "authorization_endpoint": at("authorize"),
            "token_endpoint": at("token"),
            "jwks_uri": at("keys"),
            "response_types_supported": ["code"],
            "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
        });
        match self.kind {
            ProviderKind::Keycloak => {
                metadata["registration_endpoint"] = at("register").into();
                metadata["revocation_endpoint"] = at("revoke").into();
                metadata["authorization_response_iss_parameter_supported"] = true.into();
                metadata["code_challenge_methods_supported"] = json!(["plain", "S256"]);
            }
            ProviderKind::Auth0 | ProviderKind::Google => {
                metadata["revocation_endpoint"] = at("revoke").into();
                metadata["code_challenge_methods_supported"] = json!(["plain", "S256"]);
            }
            ProviderKind::Okta => {
                metadata["registration_endpoint"] = at("register").into();
                metadata["revocation_endpoint"] = at("revoke").into();
                metadata["code_challenge_methods_supported"] = json!(["S256"]);
            }
            // The metadata of Entra mentions neither PKCE nor registration nor revocation.
            ProviderKind::Entra => {
                metadata["token_endpoint_auth_methods_supported"] =
                    json!(["client_secret_post", "private_key_jwt"]);
            }
        }
        metadata
    }

    /// Redirects the browser with a code or an error, or shows a page with the error.
    fn authorize(&self, parameters: &HashMap<String, String>) -> Response {
        let get = |name: &str| parameters.get(name).map_or("", String::as_str);
        let mut state = self.state();
        let page = |what: &str| (StatusCode::BAD_REQUEST, what.to_owned()).into_response();
        if get("client_id") != CLIENT {
            return page("unknown client");
        }
        if !state
            .redirect_uris
            .iter()
            .any(|it| it == get("redirect_uri"))
        {
            return page("AADSTS50011 redirect_uri_mismatch");
        }
        let scopes: Vec<&str> = get("scope").split(' ').collect();
        let openid = ["openid", "profile", "email", "offline_access"];
        let prefix = format!("api://{CLIENT}/");
        let of_api = |scope: &&&str| scope.starts_with(&prefix);
        match self.kind {
            ProviderKind::Entra if parameters.contains_key("resource") => {
                return page(
                    "AADSTS9010010: The resource parameter provided in the request doesn't match with the requested scopes.",
                );
            }
            ProviderKind::Entra if !scopes.iter().all(|it| openid.contains(it) || of_api(&it)) => {
                return page(
                    "AADSTS650053: The application asked for a scope that doesn't exist on the resource.",
                );
            }
            ProviderKind::Google if scopes.contains(&"offline_access") => {
                return page("Error 400: invalid_scope");
            }
            ProviderKind::Okta if get("state").is_empty() => return page("state is required"),
            _ => {}
        }
        let mut answer = vec![("state", get("state").to_owned())];
        let known = [
            "openid",
            "profile",
            "email",
            "offline_access",
            "mcp",
            "mcp.write",
        ];
        if state.person == "nobody" {
            answer.push(("error", "access_denied".to_owned()));
        } else if self.kind == ProviderKind::Okta && !scopes.iter().all(|it| known.contains(it)) {
            answer.push(("error", "invalid_scope".to_owned()));
        } else {
            let code = self.unique(&mut state, "code");
            let offline = match self.kind {
                // A refresh token of Keycloak is valid as long as the session.
                ProviderKind::Keycloak => true,
                ProviderKind::Google => {
                    get("access_type") == "offline" && get("prompt") == "consent"
                }
                _ => scopes.contains(&"offline_access"),
            };
            let grant = ProviderGrant {
                person: state.person.clone(),
                challenge: get("code_challenge").to_owned(),
                redirect_uri: get("redirect_uri").to_owned(),
                scope: get("scope").to_owned(),
                audience: parameters.get("audience").cloned(),
                offline,
            };
            state.codes.insert(code.clone(), grant);
            answer.push(("code", code));
        }
        match self.kind {
            ProviderKind::Keycloak => {
                answer.push(("session_state", "5e5510".to_owned()));
                let issuer = state.says_issuer.clone();
                answer.push(("iss", issuer.unwrap_or_else(|| self.issuer())));
            }
            ProviderKind::Google => answer.push(("authuser", "0".to_owned())),
            _ => {}
        }
        let mut back = Url::parse(get("redirect_uri")).expect("a registered redirect URI");
        back.query_pairs_mut().extend_pairs(answer);
        (StatusCode::FOUND, [(header::LOCATION, back.to_string())]).into_response()
    }

    fn token(
        &self,
        headers: &HeaderMap,
        parameters: &HashMap<String, String>,
    ) -> Result<Value, &'static str> {
        let get = |name: &str| parameters.get(name).map_or("", String::as_str);
        if !self.is_gateway(headers, parameters) {
            return Err("invalid_client");
        }
        if self.kind == ProviderKind::Entra && parameters.contains_key("resource") {
            return Err("invalid_target");
        }
        let mut state = self.state();
        let (grant, held) = match get("grant_type") {
            "authorization_code" => {
                let grant = state.codes.remove(get("code")).ok_or("invalid_grant")?;
                let challenge = digest(&SHA256, get("code_verifier").as_bytes());
                if base64url(challenge.as_ref()) != grant.challenge
                    || get("redirect_uri") != grant.redirect_uri
                {
                    return Err("invalid_grant");
                }
                (grant, None)
            }
            "refresh_token" => {
                let held = get("refresh_token").to_owned();
                let grant = state
                    .refresh_tokens
                    .get(&held)
                    .cloned()
                    .ok_or("invalid_grant")?;
                (grant, Some(held))
            }
            _ => return Err("unsupported_grant_type"),
        };
        let mut tokens = self.tokens(&mut state, &grant);
        let replaces = matches!(self.kind, ProviderKind::Auth0 | ProviderKind::Okta);
        if grant.offline && (held.is_none() || replaces || self.kind == ProviderKind::Entra) {
            let padding = match self.kind {
                ProviderKind::Entra | ProviderKind::Keycloak => "r".repeat(1_400),
                _ => String::new(),
            };
            let refresh = format!("{}{padding}", self.unique(&mut state, "refresh"));
            state.refresh_tokens.insert(refresh.clone(), grant);
            tokens["refresh_token"] = refresh.into();
        }
        if let Some(held) = held.filter(|_| replaces) {
            state.refresh_tokens.remove(&held);
        }
        Ok(tokens)
    }

    /// Returns whether the client authenticated as the gateway (RFC 6749 §2.3.1), by either method.
    fn is_gateway(&self, headers: &HeaderMap, parameters: &HashMap<String, String>) -> bool {
        if self.kind == ProviderKind::Entra || !headers.contains_key(header::AUTHORIZATION) {
            return parameters.get("client_id").is_some_and(|it| it == CLIENT)
                && parameters
                    .get("client_secret")
                    .is_some_and(|it| it == SECRET);
        }
        let secret = SECRET.replace(' ', "+").replace(':', "%3A");
        let expected = format!("Basic {}", STANDARD.encode(format!("{CLIENT}:{secret}")));
        headers[header::AUTHORIZATION] == expected.as_str()
    }

    fn tokens(&self, state: &mut ProviderState, grant: &ProviderGrant) -> Value {
        let now = self.ambient.now().as_seconds();
        let person = &grant.person;
        let unique = self.unique(state, "id");
        let prefix = format!("api://{CLIENT}/");
        let scopes: Vec<&str> = (grant.scope.split(' '))
            .map(|scope| scope.strip_prefix(&*prefix).unwrap_or(scope))
            .collect();
        let of_api: Vec<&str> = scopes
            .iter()
            .copied()
            .filter(|it| it.starts_with("mcp"))
            .collect();
        let mut claims = json!({
            "iss": self.issuer(), "sub": person, "iat": now, "exp": now + LIFETIME,
        });
        let mut answer = json!({
            "token_type": "Bearer", "expires_in": LIFETIME, "scope": grant.scope,
        });
        match self.kind {
            ProviderKind::Keycloak => {
                claims["aud"] = json!([CLIENT, "account"]);
                claims["typ"] = "Bearer".into();
                claims["azp"] = CLIENT.into();
                claims["scope"] = grant.scope.clone().into();
                claims["realm_access"] = json!({ "roles": ["Doctor", "offline_access"] });
                claims["jti"] = unique.into();
            }
            ProviderKind::Auth0 => {
                let userinfo = format!("{}userinfo", self.issuer());
                claims["aud"] = json!([grant.audience, userinfo]);
                claims["scope"] = grant.scope.clone().into();
                claims["https://hospital.example/roles"] = json!(["Doctor"]);
                claims["jti"] = unique.into();
                if grant.audience.is_none() {
                    // The token is encrypted for Auth0 itself: it has five parts, and the second is empty.
                    answer["access_token"] =
                        "eyJhbGciOiJkaXIiLCJlbmMiOiJBMjU2R0NNIn0..AAAA.AAAA.AAAA".into();
                    return answer;
                }
            }
            ProviderKind::Okta => {
                claims["ver"] = 1.into();
                claims["jti"] = format!("AT.{unique}").into();
                claims["aud"] = "api://default".into();
                claims["cid"] = CLIENT.into();
                claims["uid"] = "00uann".into();
                claims["scp"] = json!(scopes);
                claims["groups"] = json!(["Everyone", "Doctor"]);
            }
            ProviderKind::Entra if of_api.is_empty() => {
                // The token is for Microsoft Graph, and only Microsoft Graph can verify it.
                claims["aud"] = "00000003-0000-0000-c000-000000000000".into();
            }
            ProviderKind::Entra => {
                claims["aud"] = CLIENT.into();
                claims["ver"] = "2.0".into();
                claims["tid"] = "0ca7e6-tenant".into();
                claims["scp"] = of_api.join(" ").into();
                claims["roles"] = json!(["Doctor"]);
                claims["uti"] = unique.into();
            }
            ProviderKind::Google => {
                claims["aud"] = CLIENT.into();
                claims["azp"] = CLIENT.into();
                claims["hd"] = "hospital.example".into();
                claims["email"] = format!("{person}@hospital.example").into();
                claims["at_hash"] = unique.clone().into();
                answer["access_token"] = format!("ya29.{unique}").into();
                answer["id_token"] = self.sign(&claims).into();
                answer["scope"] = "openid https://www.googleapis.com/auth/userinfo.email".into();
                return answer;
            }
        }
        answer["access_token"] = self.sign(&claims).into();
        answer["id_token"] = "not.looked.at".into();
        answer
    }

    fn sign(&self, claims: &Value) -> String {
        self.key
            .token(json!({ "alg": "RS256", "typ": "JWT", "kid": "1" }), claims)
    }

    #[expect(
        clippy::unused_self,
        reason = "it counts in the state of the provider, which is locked already"
    )]
    fn unique(&self, state: &mut ProviderState, what: &str) -> String {
        state.counter += 1;
        format!("{what}-{}", state.counter)
    }
}

fn parse(text: &str) -> HashMap<String, String> {
    let url = Url::parse(&format!("http://x/?{text}"));
    let url = url.expect("a query is one whatever it has");
    url.query_pairs().into_owned().collect()
}

fn axum_json(status: StatusCode, body: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (status, headers, body.to_string()).into_response()
}
