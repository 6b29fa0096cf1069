//! Tests of each preset with a provider that behaves accordingly.

use serde_json::{Value, json};
use wardgate_testkit::ProviderKind;

use super::world::{REDIRECT, World};

const ALL: [ProviderKind; 5] = [
    ProviderKind::Keycloak,
    ProviderKind::Auth0,
    ProviderKind::Okta,
    ProviderKind::Entra,
    ProviderKind::Google,
];

fn names(scope: &Value) -> Vec<&str> {
    scope.as_str().unwrap().split(' ').collect()
}

#[tokio::test]
async fn a_client_of_every_provider_gets_the_providers_own_token_and_renews_it() {
    for kind in ALL {
        let world = World::start(kind).await;
        let (client, first) = world.signed_in().await;
        let token = first["access_token"].as_str().unwrap();
        assert_eq!(
            token.split('.').count(),
            3,
            "{kind:?}: a JWT that the gateway can verify"
        );
        assert_eq!(first["token_type"], "Bearer");
        assert_eq!(first["expires_in"], 3_600);
        let mut held = first["refresh_token"].as_str().unwrap().to_owned();
        for _ in 0..3 {
            let (status, next) = world.refresh(&client, &held).await;
            assert_eq!(status, 200, "{kind:?}: {next}");
            let newer = next["refresh_token"].as_str().unwrap();
            assert_ne!(newer, held, "{kind:?}");
            newer.clone_into(&mut held);
        }
        for requested in world.provider.requests("authorize") {
            assert_eq!(requested.get("resource"), None, "{kind:?}");
            assert_eq!(requested["code_challenge_method"], "S256");
        }
    }
}

#[tokio::test]
async fn a_client_that_asks_for_more_scope_gets_it_where_tokens_have_scopes() {
    for kind in ALL {
        let world = World::start(kind).await;
        let client = world.client(REDIRECT).await;
        let asked = [
            ("scope", "mcp mcp.write offline_access profile unheard_of"),
            ("resource", &world.at("/mcp")),
        ];
        let page = world.allow(&client, &asked).await;
        let code = page
            .parameter("code")
            .unwrap_or_else(|| panic!("{kind:?}: {}", page.url));
        let (status, tokens) = world.redeem(&client, &code).await;
        assert_eq!(status, 200, "{kind:?}: {tokens}");
        let scope = names(&tokens["scope"]);
        assert_eq!(
            scope.contains(&"mcp.write"),
            world.provider.has_scopes(),
            "{kind:?}"
        );
        assert!(!scope.contains(&"unheard_of"), "{kind:?}");
        let (_, tokens) = world.signed_in().await;
        assert!(
            !names(&tokens["scope"]).contains(&"mcp.write"),
            "{kind:?}: nobody asked"
        );
    }
}

#[tokio::test]
async fn what_a_provider_ended_is_told_the_client_as_oauth_has_it() {
    for kind in ALL {
        let world = World::start(kind).await;
        let (client, tokens) = world.signed_in().await;
        let held = tokens["refresh_token"].as_str().unwrap();
        world.provider.set_away(true);
        let (status, answer) = world.refresh(&client, held).await;
        assert_eq!(
            (status, &answer["error"]),
            (503, &json!("temporarily_unavailable"))
        );
        world.provider.set_away(false);
        let (status, tokens) = world.refresh(&client, held).await;
        assert_eq!(
            status, 200,
            "{kind:?}: a provider that was away costs no sign-in: {tokens}"
        );
        world.provider.end_sessions();
        let held = tokens["refresh_token"].as_str().unwrap();
        let (status, answer) = world.refresh(&client, held).await;
        assert_eq!(
            (status, &answer["error"]),
            (400, &json!("invalid_grant")),
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn a_person_who_refuses_at_the_provider_or_on_our_page_sends_the_client_an_error() {
    for kind in ALL {
        let world = World::start(kind).await;
        let client = world.client(REDIRECT).await;
        world.provider.sign_in_as("nobody");
        let page = world.allow(&client, &[]).await;
        assert_eq!(
            page.parameter("error").as_deref(),
            Some("access_denied"),
            "{kind:?}"
        );
        assert_eq!(page.parameter("state").as_deref(), Some("the client's own"));
        assert_eq!(page.parameter("iss").as_deref(), Some(&*world.url));
        assert_eq!(page.parameter("code"), None);
    }
}

#[tokio::test]
async fn a_revoked_refresh_token_is_ended_at_the_provider_that_can() {
    for kind in ALL {
        let world = World::start(kind).await;
        let (client, tokens) = world.signed_in().await;
        let held = tokens["refresh_token"].as_str().unwrap();
        assert_eq!(world.provider.sessions(), 1);
        let form = [("client_id", client.as_str()), ("token", held)];
        assert_eq!(world.post("/oauth/revoke", &form).await.0, 200);
        let left = usize::from(kind == ProviderKind::Entra);
        assert_eq!(world.provider.sessions(), left, "{kind:?}");
        let (status, answer) = world.refresh(&client, held).await;
        assert_eq!(
            (status, &answer["error"]),
            (400, &json!("invalid_grant")),
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn a_token_that_the_gateway_would_refuse_is_not_handed_out() {
    // An application whose tokens have another audience than the gateway is configured for.
    let world = World::start_with(
        ProviderKind::Auth0,
        json!({ "audience": "https://other.example/" }),
    )
    .await;
    let client = world.client(REDIRECT).await;
    let code = world.code(&client).await;
    let (status, answer) = world.redeem(&client, &code).await;
    assert_eq!((status, &answer["error"]), (500, &json!("server_error")));
    assert_eq!(answer.get("access_token"), None);
}
