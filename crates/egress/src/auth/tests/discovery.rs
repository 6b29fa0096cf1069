//! Tests of discovery with an MCP server, its authorization server and their metadata on one port.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::Request as Received;
use axum::response::Response;
use serde_json::json;

use super::*;

/// A server that serves the pages of a test and records the requests in order.
pub(super) struct Site {
    pub(super) address: SocketAddr,
    pages: Mutex<BTreeMap<String, Page>>,
    asked: Mutex<Vec<ReceivedRequest>>,
}

pub(super) type Page = (u16, Vec<(&'static str, String)>, Value);

#[derive(Clone)]
pub(super) struct ReceivedRequest {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) form: BTreeMap<String, String>,
}

impl Site {
    pub(super) async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let site = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            pages: Mutex::default(),
            asked: Mutex::default(),
        });
        let serving = Arc::clone(&site);
        let router = Router::new().fallback(async move |request| serving.serve(request).await);
        tokio::spawn(async move { axum::serve(listener, router).await });
        site
    }

    async fn serve(&self, request: Received) -> Response {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let path = head.uri.path().to_owned();
        self.asked.lock().unwrap().push(ReceivedRequest {
            path: path.clone(),
            headers: head.headers.clone(),
            form: form_urlencoded(&body),
        });
        let page = self.pages.lock().unwrap().get(&path).cloned();
        let (status, headers, body) = page.unwrap_or((404, Vec::new(), Value::Null));
        // The service accepts only the token that its authorization server issues.
        let is_welcome = authorization_of(&head.headers) == "Bearer granted";
        let status = if status == 401 && is_welcome {
            200
        } else {
            status
        };
        let response = Response::builder().status(status);
        let response = headers
            .into_iter()
            .fold(response, |response, (name, value)| {
                response.header(name, value)
            });
        response.body(Body::from(body.to_string())).unwrap()
    }

    pub(super) fn insert_page(&self, path: &str, page: Page) {
        self.pages.lock().unwrap().insert(path.to_owned(), page);
    }

    pub(super) fn json(&self, path: &str, body: Value) {
        self.insert_page(path, (200, Vec::new(), body));
    }

    pub(super) fn at(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().unwrap().clone()
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.requests()
            .into_iter()
            .map(|asked| asked.path)
            .collect()
    }

    /// Adds a service at `/a/mcp` that requires a token of the issuer `/as`.
    fn with_server(&self) {
        let header = ("WWW-Authenticate", "Bearer".to_owned());
        self.insert_page("/a/mcp", (401, vec![header], Value::Null));
        self.json(
            "/.well-known/oauth-authorization-server/as",
            json!({ "issuer": self.at("/as"), "token_endpoint": self.at("/as/token") }),
        );
        self.json(
            "/as/token",
            json!({"access_token": "granted", "token_type": "Bearer", "expires_in": 600}),
        );
    }

    fn with_metadata(&self, path: &str, resource: &str) {
        let issuers = [self.at("/as")];
        let metadata = json!({ "resource": self.at(resource), "authorization_servers": issuers, "scopes_supported": ["read", "write"] });
        self.json(path, metadata);
    }

    /// Calls `/a/mcp` with `auth`.
    async fn call(&self, auth: OAuthClient) -> Result<StatusCode, EgressError> {
        let mut auth = AuthSettings::ClientCredentials(auth);
        let url: Url = self.at("/a/mcp").parse().unwrap();
        auth.belong_to(&url);
        let egress = EgressSettings::for_url(
            &url,
            [],
            PrivateAddresses::Allowed,
            Duration::from_secs(20),
            1024,
        );
        let settings = ClientSettings {
            egress,
            headers: HeaderMap::new(),
            auth,
        };
        let client = EgressClient::open(&settings, &Ambient::system()).unwrap();
        let response = client
            .send(EgressRequest::new(Method::GET, url), None)
            .await?;
        Ok(response.status)
    }
}

fn unknown() -> OAuthClient {
    OAuthClient {
        server: ServerSettings::default(),
        client_id: "runner".to_owned(),
        proof: ClientProof::Secret("secret".to_owned().into()),
        scope: None,
        audience: None,
        resource: None,
    }
}

const INSERTED: &str = "/.well-known/oauth-protected-resource/a/mcp";
const ROOT: &str = "/.well-known/oauth-protected-resource";
const SERVER: &str = "/.well-known/oauth-authorization-server/as";
const ORIGIN: &str = "/.well-known/oauth-authorization-server";

fn why(error: &EgressError) -> &'static str {
    match error {
        EgressError::Auth(AuthError::NotFound(why)) => why,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_server_says_itself_whose_tokens_it_takes() {
    let site = Site::start().await;
    site.with_server();
    site.with_metadata(INSERTED, "/a/mcp");
    assert_eq!(site.call(unknown()).await.unwrap(), 200);
    assert_eq!(
        site.paths(),
        ["/a/mcp", INSERTED, SERVER, "/as/token", "/a/mcp"]
    );
    let asked = site.requests();
    assert_eq!(authorization_of(&asked[0].headers), "");
    assert_eq!(asked[3].form["grant_type"], "client_credentials");
    assert_eq!(asked[3].form["resource"], site.at("/a/mcp"));
    assert_eq!(asked[3].form["scope"], "read write");
}

#[tokio::test]
async fn the_challenge_is_asked_first_then_the_path_then_the_root() {
    let site = Site::start().await;
    site.with_server();
    let challenge = format!(
        "Bearer resource_metadata=\"{}\", scope=\"read\"",
        site.at("/elsewhere")
    );
    site.insert_page(
        "/a/mcp",
        (401, vec![("WWW-Authenticate", challenge)], Value::Null),
    );
    site.with_metadata("/elsewhere", "/a");
    assert_eq!(site.call(unknown()).await.unwrap(), 200);
    assert_eq!(site.paths()[1], "/elsewhere");
    assert_eq!(site.requests()[3].form["scope"], "read");
    assert_eq!(site.requests()[3].form["resource"], site.at("/a"));

    let site = Site::start().await;
    site.with_server();
    site.with_metadata(ROOT, "");
    assert_eq!(site.call(unknown()).await.unwrap(), 200);
    assert_eq!(site.paths()[1..4], [INSERTED, ROOT, SERVER]);
}

#[tokio::test]
async fn an_issuer_is_looked_up_in_all_three_forms() {
    for (path, before) in [
        (SERVER, 0),
        ("/.well-known/openid-configuration/as", 1),
        ("/as/.well-known/openid-configuration", 2),
    ] {
        let site = Site::start().await;
        site.with_server();
        site.with_metadata(INSERTED, "/a/mcp");
        let metadata = json!({ "issuer": site.at("/as"), "token_endpoint": site.at("/as/token"), "token_endpoint_auth_methods_supported": ["client_secret_post"] });
        site.insert_page(SERVER, (404, Vec::new(), Value::Null));
        site.json(path, metadata);
        assert_eq!(site.call(unknown()).await.unwrap(), 200);
        assert_eq!(site.paths()[2 + before], path);
        let asked = &site.requests()[3 + before];
        assert_eq!(asked.form["client_secret"], "secret");
        assert_eq!(authorization_of(&asked.headers), "");
    }
}

#[tokio::test]
async fn a_service_without_metadata_trusts_the_server_at_its_own_origin_or_none() {
    let site = Site::start().await;
    site.with_server();
    let error = site.call(unknown()).await.unwrap_err();
    assert_eq!(why(&error), "the source has no metadata (RFC 9728)");
    let metadata = |issuer| json!({ "issuer": issuer, "token_endpoint": site.at("/as/token") });
    site.json(ORIGIN, metadata(site.at("/as")));
    let error = site.call(unknown()).await.unwrap_err();
    assert_eq!(why(&error), "the source has no metadata (RFC 9728)");
    site.json(ORIGIN, metadata(site.at("")));
    assert_eq!(site.call(unknown()).await.unwrap(), 200);
    let asked = site.requests();
    let asked = asked.iter().find(|asked| asked.path == "/as/token");
    assert_eq!(asked.unwrap().form["resource"], site.at("/a/mcp"));
}

#[tokio::test]
async fn what_is_configured_is_never_asked_for() {
    let site = Site::start().await;
    site.with_server();
    let mut auth = unknown();
    auth.server.token_url = Some(site.at("/as/token").parse().unwrap());
    auth.scope = Some("mine".to_owned());
    assert_eq!(site.call(auth).await.unwrap(), 200);
    assert_eq!(site.paths(), ["/as/token", "/a/mcp"]);
    assert_eq!(site.requests()[0].form["scope"], "mine");

    let site = Site::start().await;
    site.with_server();
    let mut auth = unknown();
    auth.server.issuer = Some(site.at("/as"));
    auth.resource = Some("urn:mine".to_owned());
    assert_eq!(site.call(auth).await.unwrap(), 200);
    assert_eq!(site.paths(), [SERVER, "/as/token", "/a/mcp"]);
    assert_eq!(site.requests()[1].form["resource"], "urn:mine");
}

#[tokio::test]
async fn metadata_of_somebody_else_leads_nowhere() {
    let site = Site::start().await;
    site.with_server();
    for resource in ["/a/mc", "/b", "/a/mcp/deeper", "/a/mcp?x", "/a/mcp#x"] {
        site.with_metadata(INSERTED, resource);
        let error = site.call(unknown()).await.unwrap_err();
        assert_eq!(
            why(&error),
            "the metadata of the source describes another resource",
            "{resource}"
        );
    }
    site.with_metadata(INSERTED, "/a/mcp");
    for issuer in ["/as/", "/AS", "/other"] {
        let metadata = json!({ "issuer": site.at(issuer), "token_endpoint": site.at("/as/token") });
        site.json(SERVER, metadata);
        let error = site.call(unknown()).await.unwrap_err();
        assert_eq!(
            why(&error),
            "the metadata of its issuer names another issuer"
        );
    }
    assert!(!site.paths().contains(&"/as/token".to_owned()));
}

#[tokio::test]
async fn no_word_of_a_peer_leads_into_networks_that_are_not_listed() {
    let site = Site::start().await;
    site.with_server();
    for inner in [
        "http://169.254.169.254/x",
        "http://10.0.0.1/x",
        "ftp://a/x",
        "http://[::1]/x",
    ] {
        let issuers = [inner];
        let metadata = json!({ "resource": site.at("/a/mcp"), "authorization_servers": issuers });
        site.json(INSERTED, metadata);
        let url: Url = site.at("/a/mcp").parse().unwrap();
        let finder = crate::auth::discovery::MetadataDiscovery::new(&EgressSettings::for_url(
            &url,
            [],
            PrivateAddresses::Listed(vec!["127.0.0.1/32".parse().unwrap()]),
            Duration::from_secs(20),
            1024,
        ));
        let refused = match finder.of_service(&url).await {
            Ok(protected) => finder.of_issuer(&protected.issuer).await.unwrap_err(),
            Err(error) => error,
        };
        let is_refused = match &refused {
            AuthError::Endpoint(error) => {
                matches!(error.as_ref(), EgressError::AddressRefused(_))
            }
            AuthError::NotFound(why) => why.ends_with("is not https"),
            _ => false,
        };
        assert!(is_refused, "{inner}: {refused}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_is_looked_for_again() {
    let site = Site::start().await;
    site.with_server();
    site.with_metadata(INSERTED, "/a/mcp");
    let url: Url = site.at("/a/mcp").parse().unwrap();
    let mut settings = unknown();
    settings.server.service = Some(url.clone());
    let limits = EgressSettings::for_url(
        &url,
        [],
        PrivateAddresses::Allowed,
        Duration::from_secs(20),
        1024,
    );
    let server = TokenEndpointClient::open(&settings, &limits, &Ambient::system()).unwrap();
    server.own_token(String::new()).await.unwrap();
    server.own_token(String::new()).await.unwrap();
    assert_eq!(site.paths()[3..], ["/as/token", "/as/token"]);
    let moved = json!({ "issuer": site.at("/as"), "token_endpoint": site.at("/moved") });
    site.json(SERVER, moved);
    site.insert_page("/as/token", (404, Vec::new(), Value::Null));
    site.json(
        "/moved",
        json!({"access_token": "granted", "token_type": "Bearer"}),
    );
    assert!(server.own_token(String::new()).await.is_err());
    server.own_token(String::new()).await.unwrap();
    assert_eq!(site.paths().last().unwrap(), "/moved");
}

#[tokio::test]
async fn a_service_that_needs_more_scope_gets_it_once_and_never_beyond_what_is_configured() {
    for configured in [None, Some("read".to_owned())] {
        let site = Site::start().await;
        site.with_server();
        site.with_metadata(INSERTED, "/a/mcp");
        let more = r#"Bearer error="insufficient_scope", scope="write admin""#;
        site.insert_page(
            "/a/mcp",
            (
                403,
                vec![("WWW-Authenticate", more.to_owned())],
                Value::Null,
            ),
        );
        let auth = OAuthClient {
            scope: configured.clone(),
            ..unknown()
        };
        // The service rejects every token, and there is no third request.
        assert_eq!(site.call(auth).await.unwrap(), 403);
        let asked: Vec<_> = site.requests().into_iter().collect();
        let scopes: Vec<_> = asked
            .iter()
            .filter(|asked| asked.path == "/as/token")
            .map(|asked| asked.form["scope"].as_str())
            .collect();
        let expected: &[&str] = match configured {
            None => &["read write", "read write admin"],
            Some(_) => &["read"],
        };
        assert_eq!(scopes, expected);
    }
}
