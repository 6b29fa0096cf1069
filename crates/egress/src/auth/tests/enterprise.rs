//! Tests of the requests to the identity provider and to the service's authorization server (ID-JAG).

use super::discovery::Site;
use super::*;
use crate::auth::enterprise::{EnterpriseSettings, SubjectToken};

const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

fn client(site: &Site, path: &str, id: &str) -> OAuthClient {
    OAuthClient {
        server: ServerSettings {
            token_url: Some(site.at(path).parse().unwrap()),
            issuer: Some(site.at("/as")),
            service: None,
        },
        client_id: id.to_owned(),
        proof: ClientProof::Secret("secret".to_owned().into()),
        scope: None,
        audience: None,
        resource: None,
    }
}

fn settings(site: &Site, subject: SubjectToken) -> AuthSettings {
    AuthSettings::Enterprise(Box::new(EnterpriseSettings {
        client: OAuthClient {
            scope: Some("notes.read".to_owned()),
            resource: Some(site.at("/mcp")),
            ..client(site, "/as/token", "at-service")
        },
        identity_provider: client(site, "/idp/token", "at-provider"),
        subject,
    }))
}

async fn world() -> Arc<Site> {
    let site = Site::start().await;
    site.json(
        "/idp/token",
        json!({"access_token": "the-id-jag", "issued_token_type": ID_JAG, "token_type": "N_A", "expires_in": 300}),
    );
    site.json(
        "/as/token",
        json!({"access_token": "granted", "token_type": "Bearer", "expires_in": 600}),
    );
    site.insert_page("/mcp", (401, Vec::new(), Value::Null));
    site
}

fn open(site: &Site, auth: AuthSettings) -> EgressClient {
    let url: Url = site.at("/mcp").parse().unwrap();
    let settings = ClientSettings {
        egress: EgressSettings::for_url(
            &url,
            [],
            PrivateAddresses::Allowed,
            Duration::from_secs(20),
            1024,
        ),
        headers: HeaderMap::new(),
        auth,
    };
    let ambient = TestClock::at(START).ambient();
    EgressClient::open(&settings, &ambient).unwrap()
}

async fn call(
    site: &Site,
    client: &EgressClient,
    caller: Option<OnBehalf<'_>>,
) -> Result<StatusCode, EgressError> {
    let url = site.at("/mcp").parse().unwrap();
    let response = client
        .send(EgressRequest::new(Method::GET, url), caller)
        .await?;
    Ok(response.status)
}

#[tokio::test]
async fn the_provider_grants_for_one_service_and_its_server_gives_the_token() {
    let site = world().await;
    let client = open(&site, settings(&site, SubjectToken::AccessToken));
    let status = call(&site, &client, Some(token("canary-ann", 6_000))).await;
    assert_eq!(status.unwrap(), 200);
    let asked = site.requests();
    let pairs = |form: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        form.iter().map(pair).collect()
    };
    let (issuer, resource) = (site.at("/as"), site.at("/mcp"));
    assert_eq!(asked[0].path, "/idp/token");
    assert_eq!(
        asked[0].form,
        pairs(&[
            (
                "grant_type",
                "urn:ietf:params:oauth:grant-type:token-exchange"
            ),
            ("requested_token_type", ID_JAG),
            ("audience", &issuer),
            ("resource", &resource),
            ("scope", "notes.read"),
            ("subject_token", "canary-ann"),
            ("subject_token_type", ACCESS_TOKEN),
        ])
    );
    assert_eq!(asked[1].path, "/as/token");
    assert_eq!(
        asked[1].form,
        pairs(&[
            ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
            ("assertion", "the-id-jag"),
            ("scope", "notes.read"),
            ("resource", &resource),
        ])
    );
    // Each server has a client of its own.
    assert_ne!(
        authorization_of(&asked[0].headers),
        authorization_of(&asked[1].headers)
    );
    assert_eq!(authorization_of(&asked[2].headers), "Bearer granted");
}

#[tokio::test]
async fn each_caller_has_a_token_and_a_kept_one_is_used_again() {
    let site = world().await;
    let client = open(&site, settings(&site, SubjectToken::IdToken));
    for caller in ["ann", "ann", "ben", "ann"] {
        let caller = token(caller, 6_000);
        assert_eq!(call(&site, &client, Some(caller)).await.unwrap(), 200);
    }
    let granted: Vec<_> = site
        .requests()
        .into_iter()
        .filter(|asked| asked.path == "/idp/token")
        .collect();
    assert_eq!(granted.len(), 2);
    assert_eq!(granted[1].form["subject_token"], "ben");
    assert_eq!(
        granted[1].form["subject_token_type"],
        "urn:ietf:params:oauth:token-type:id_token"
    );
}

#[tokio::test]
async fn what_is_no_grant_goes_nowhere() {
    let site = world().await;
    let client = open(&site, settings(&site, SubjectToken::AccessToken));
    let error = call(&site, &client, None).await.unwrap_err();
    assert!(matches!(error, EgressError::Auth(AuthError::NoCallerToken)));
    site.json(
        "/idp/token",
        json!({"access_token": "canary", "token_type": "Bearer", "issued_token_type": ACCESS_TOKEN}),
    );
    let error = call(&site, &client, Some(token("ann", 600))).await;
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "the response of the token endpoint is not an ID-JAG");
    assert_eq!(site.paths(), ["/idp/token"]);
}
