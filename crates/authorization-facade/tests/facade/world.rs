//! A facade on loopback with a fake provider, and a client.

use std::sync::Arc;

use reqwest::Response;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use wardgate_authorization_facade::{AuthorizationConfig, AuthorizationServer, FacadeParts};
use wardgate_domain::Digest;
use wardgate_edge::{AuthConfig, Authenticator, BodyLimits, Origins};
use wardgate_gateway_store::{Sealer, SessionKey, Store};
use wardgate_store::DatabaseSettings;
use wardgate_testkit::{
    FakeIdentityProvider, ProviderKind, TestBrowser, TestClock, TestPage, base64url,
};

/// The redirect URI of the programs in these tests.
pub(crate) const REDIRECT: &str = "http://127.0.0.1:9/callback";

/// The PKCE verifier of a client.
pub(crate) const VERIFIER: &str = "a-verifier-of-43-characters-or-more-as-rfc-7636";

pub(crate) struct World {
    pub(crate) provider: Arc<FakeIdentityProvider>,
    pub(crate) clock: TestClock,
    /// The URL at which clients reach the facade.
    pub(crate) url: String,
    pub(crate) http: reqwest::Client,
    settings: Value,
    files: Arc<TempDir>,
}

impl World {
    pub(crate) async fn start(kind: ProviderKind) -> Self {
        Self::start_with(kind, json!({})).await
    }

    /// Starts a facade with additional settings.
    pub(crate) async fn start_with(kind: ProviderKind, settings: Value) -> Self {
        let clock = TestClock::at(1_800_000_000);
        let provider = FakeIdentityProvider::start(kind, clock.ambient()).await;
        let files = Arc::new(tempfile::tempdir().unwrap());
        let mut all = provider.authorization(files.path());
        let settings = settings.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(settings);
        let url = serve(&provider, &all, &files, &clock, None).await;
        Self {
            provider,
            clock,
            url,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            settings: all,
            files,
        }
    }

    /// Starts another replica with the same public URL, and returns its address.
    pub(crate) async fn replica(&self) -> String {
        let public_url = Some(self.url.clone());
        serve(
            &self.provider,
            &self.settings,
            &self.files,
            &self.clock,
            public_url,
        )
        .await
    }

    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub(crate) async fn metadata(&self) -> Value {
        let url = self.at("/.well-known/oauth-authorization-server");
        answer(self.http.get(url).send().await.unwrap()).await.1
    }

    pub(crate) async fn register(&self, metadata: Value) -> (u16, Value) {
        let request = self.http.post(self.at("/oauth/register"));
        let request = request
            .header("content-type", "application/json")
            .body(metadata.to_string());
        answer(request.send().await.unwrap()).await
    }

    /// Registers a client with this redirect URI and returns its id.
    pub(crate) async fn client(&self, redirect_uri: &str) -> String {
        let metadata = json!({ "client_name": "A program", "redirect_uris": [redirect_uri] });
        let (status, registered) = self.register(metadata).await;
        assert_eq!(status, 201, "{registered}");
        registered["client_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn post(&self, path: &str, form: &[(&str, &str)]) -> (u16, Value) {
        self.post_to(&self.url, path, form).await
    }

    pub(crate) async fn post_to(
        &self,
        base: &str,
        path: &str,
        form: &[(&str, &str)],
    ) -> (u16, Value) {
        let request = self.http.post(format!("{base}{path}"));
        let request = request
            .header("content-type", "application/x-www-form-urlencoded")
            .body(encode_form(form));
        answer(request.send().await.unwrap()).await
    }

    /// Returns the URL of an authorization request of `client`. `further` overrides its default parameters.
    pub(crate) fn authorize_url(&self, client: &str, further: &[(&str, &str)]) -> String {
        let challenge = challenge(VERIFIER);
        let own = [
            ("response_type", "code"),
            ("client_id", client),
            ("redirect_uri", REDIRECT),
            ("state", "the client's own"),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        let own = own
            .iter()
            .filter(|(name, _)| further.iter().all(|(other, _)| other != name));
        let all: Vec<(&str, &str)> = own.chain(further).copied().collect();
        self.at(&format!("/oauth/authorize?{}", encode_form(&all)))
    }

    /// Lets a person give the client its consent. Returns the redirect back to the client.
    pub(crate) async fn allow(&self, client: &str, further: &[(&str, &str)]) -> TestPage {
        let mut browser = TestBrowser::new(REDIRECT);
        let page = browser.open(&self.authorize_url(client, further)).await;
        assert_eq!(page.status, 200, "{}", page.text);
        browser.press(&page, "decision", "allow").await
    }

    /// Returns an authorization code for `client`.
    pub(crate) async fn code(&self, client: &str) -> String {
        let page = self.allow(client, &[]).await;
        page.parameter("code")
            .unwrap_or_else(|| panic!("no code at {}", page.url))
    }

    pub(crate) async fn redeem(&self, client: &str, code: &str) -> (u16, Value) {
        self.post("/oauth/token", &redemption(client, code)).await
    }

    pub(crate) async fn refresh(&self, client: &str, token: &str) -> (u16, Value) {
        let form = [
            ("grant_type", "refresh_token"),
            ("client_id", client),
            ("refresh_token", token),
        ];
        self.post("/oauth/token", &form).await
    }

    /// Returns a new client and the tokens of its user.
    pub(crate) async fn signed_in(&self) -> (String, Value) {
        let client = self.client(REDIRECT).await;
        let code = self.code(&client).await;
        let (status, tokens) = self.redeem(&client, &code).await;
        assert_eq!(status, 200, "{tokens}");
        (client, tokens)
    }
}

/// Returns the form with which a client redeems a code.
pub(crate) fn redemption<'a>(client: &'a str, code: &'a str) -> [(&'static str, &'a str); 5] {
    [
        ("grant_type", "authorization_code"),
        ("client_id", client),
        ("code", code),
        ("redirect_uri", REDIRECT),
        ("code_verifier", VERIFIER),
    ]
}

pub(crate) fn challenge(verifier: &str) -> String {
    base64url(Digest::compute(verifier.as_bytes()).as_bytes())
}

fn encode_form(form: &[(&str, &str)]) -> String {
    let url = reqwest::Url::parse_with_params("http://x/", form).unwrap();
    url.query().unwrap_or_default().to_owned()
}

async fn answer(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"));
    (status, body)
}

/// Serves a facade. Its public URL is its own address unless another one is given.
async fn serve(
    provider: &Arc<FakeIdentityProvider>,
    settings: &Value,
    files: &TempDir,
    clock: &TestClock,
    public_url: Option<String>,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = format!("http://{}", listener.local_addr().unwrap());
    let public_url = public_url.unwrap_or_else(|| own.clone());
    provider.allow_redirect(&format!("{public_url}/oauth/callback"));
    let auth: AuthConfig =
        serde_json::from_value(json!({ "issuers": [provider.trust()] })).unwrap();
    let config: AuthorizationConfig = serde_json::from_value(settings.clone()).unwrap();
    let ambient = clock.ambient();
    let store = format!("sqlite:{}", files.path().join("gateway.sqlite").display());
    let database = DatabaseSettings::default();
    let parts = FacadeParts {
        store: Store::open(&store, &database, ambient.clone())
            .await
            .unwrap(),
        sealer: Arc::new(Sealer::new(
            &SessionKey::from_bytes(&[5; 32]),
            ambient.clone(),
        )),
        auth: Arc::new(
            Authenticator::new(auth.clone(), None, ambient.clone())
                .await
                .unwrap(),
        ),
        origins: Origins::new("gateway", Some(&public_url), Vec::new(), Vec::new()).unwrap(),
        public_url,
        body_limits: BodyLimits {
            bytes: 1 << 20,
            seconds: 30,
        },
        ambient,
    };
    let opened = AuthorizationServer::open(Some(&config), None, &auth, parts).await;
    let router = opened.unwrap().router();
    tokio::spawn(async move { axum::serve(listener, router).await });
    own
}
