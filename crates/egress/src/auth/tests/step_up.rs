//! Tests of scopes that a service requires in addition.

use super::discovery::Site;
use super::*;

const FORBIDDEN: &str = r#"Bearer error="insufficient_scope", scope="admin""#;

/// Creates a service at `/mcp` that requires more scopes of everybody, and a server that does not know them.
async fn world() -> (Arc<Site>, EgressClient) {
    let site = Site::start().await;
    let challenge = ("WWW-Authenticate", FORBIDDEN.to_owned());
    site.insert_page("/mcp", (403, vec![challenge], Value::Null));
    grants(&site);
    let url: Url = site.at("/mcp").parse().unwrap();
    let egress = EgressSettings::for_url(
        &url,
        [],
        PrivateAddresses::Allowed,
        Duration::from_secs(20),
        1024,
    );
    let auth = AuthSettings::TokenExchange(OAuthClient {
        server: ServerSettings {
            token_url: Some(site.at("/token").parse().unwrap()),
            ..ServerSettings::default()
        },
        client_id: "runner".to_owned(),
        proof: ClientProof::Nothing,
        scope: None,
        audience: None,
        resource: None,
    });
    let settings = ClientSettings {
        egress,
        headers: HeaderMap::new(),
        auth,
    };
    let ambient = TestClock::at(START).ambient();
    (site, EgressClient::open(&settings, &ambient).unwrap())
}

fn grants(site: &Site) {
    let granted = json!({"access_token": "granted", "token_type": "Bearer", "expires_in": 600});
    site.json("/token", granted);
}

async fn call(site: &Site, client: &EgressClient, who: &str) -> Result<StatusCode, EgressError> {
    let request = EgressRequest::new(Method::GET, site.at("/mcp").parse().unwrap());
    let response = client.send(request, Some(token(who, 600))).await?;
    Ok(response.status)
}

/// Returns the subject tokens and the additional scopes of the token requests.
fn token_requests(site: &Site) -> Vec<(String, Option<String>)> {
    let asked = site.requests().into_iter();
    asked
        .filter(|asked| asked.path == "/token")
        .map(|asked| {
            let scope = asked.form.get("scope").cloned();
            (asked.form["subject_token"].clone(), scope)
        })
        .collect()
}

#[tokio::test]
async fn what_a_service_asks_of_one_caller_is_asked_for_with_no_others_token() {
    let (site, client) = world().await;
    assert_eq!(call(&site, &client, "ann").await.unwrap(), 403);
    site.json("/mcp", Value::Null);
    assert_eq!(call(&site, &client, "ben").await.unwrap(), 200);
    let (ann, ben) = ("ann".to_owned(), "ben".to_owned());
    let admin = Some("admin".to_owned());
    assert_eq!(
        token_requests(&site),
        [(ann.clone(), None), (ann, admin), (ben, None)]
    );
}

#[tokio::test]
async fn a_scope_that_the_server_does_not_grant_is_asked_for_no_more() {
    let (site, client) = world().await;
    // The first token is cached, so the next request to the token endpoint has the additional scope.
    site.json("/mcp", Value::Null);
    call(&site, &client, "ann").await.unwrap();
    let challenge = ("WWW-Authenticate", FORBIDDEN.to_owned());
    site.insert_page("/mcp", (403, vec![challenge], Value::Null));
    let unknown = json!({ "error": "invalid_scope" });
    site.insert_page("/token", (400, Vec::new(), unknown));
    let refused = call(&site, &client, "ann").await.unwrap_err();
    assert!(refused.to_string().contains("invalid_scope"));
    site.json("/mcp", Value::Null);
    grants(&site);
    assert_eq!(call(&site, &client, "ann").await.unwrap(), 200);
    let scopes = token_requests(&site).into_iter().map(|(_, scope)| scope);
    let scopes: Vec<_> = scopes.collect();
    assert_eq!(scopes, [None, Some("admin".to_owned()), None]);
}
