//! Tests of attacks: stolen codes, other browsers, foreign consent, forged ids and large input.

use std::time::Duration;

use serde_json::json;
use wardgate_testkit::{ProviderKind, TestBrowser};

use super::world::{REDIRECT, World, challenge, redemption};

async fn world() -> World {
    World::start(ProviderKind::Keycloak).await
}

#[tokio::test]
async fn nobody_is_sent_to_the_provider_without_having_been_asked() {
    let world = world().await;
    let client = world.client(REDIRECT).await;
    let mut browser = TestBrowser::new(REDIRECT);
    let page = browser.open(&world.authorize_url(&client, &[])).await;
    assert!(page.text.contains("<b>A program</b>"), "{}", page.text);
    assert!(page.text.contains(REDIRECT));
    assert!(world.provider.requests("authorize").is_empty());
    let back = browser.press(&page, "decision", "deny").await;
    assert_eq!(back.parameter("error").as_deref(), Some("access_denied"));
    assert_eq!(back.parameter("iss").as_deref(), Some(&*world.url));
    assert!(world.provider.requests("authorize").is_empty());
    for (name, value) in [
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
        // With `no-referrer` a browser would send the form with `Origin: null`.
        ("referrer-policy", "same-origin"),
    ] {
        assert_eq!(page.headers[name], value);
    }
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.contains("frame-ancestors 'none'") && !policy.contains("script-src"),
        "{policy}"
    );
}

#[tokio::test]
async fn the_form_of_one_browser_is_not_good_in_another() {
    let world = world().await;
    let client = world.client(REDIRECT).await;
    // The attacker's own page is submitted by the victim's browser, which has its own cookie.
    let attackers = TestBrowser::new(REDIRECT)
        .open(&world.authorize_url(&client, &[]))
        .await;
    let mut victim = TestBrowser::new(REDIRECT);
    let refused = victim.press(&attackers, "decision", "allow").await;
    assert_eq!(refused.status, 400);
    victim.open(&world.authorize_url(&client, &[])).await;
    let refused = victim.press(&attackers, "decision", "allow").await;
    assert_eq!(refused.status, 400);
    assert!(world.provider.requests("authorize").is_empty());
}

#[tokio::test]
async fn a_form_from_another_site_or_after_its_time_is_refused() {
    let world = world().await;
    let client = world.client(REDIRECT).await;
    let mut browser = TestBrowser::new(REDIRECT);
    let page = browser.open(&world.authorize_url(&client, &[])).await;
    let request = page.text.split("value=\"").nth(1).unwrap();
    let request = request.split('"').next().unwrap();
    let cookie = page.headers["set-cookie"]
        .to_str()
        .unwrap()
        .split(';')
        .next()
        .unwrap();
    for origin in ["https://evil.example", "null"] {
        let form = format!("request={request}&decision=allow");
        let request = world.http.post(world.at("/oauth/authorize"));
        let request = request
            .header("content-type", "application/x-www-form-urlencoded")
            .header("cookie", cookie)
            .header("origin", origin)
            .body(form);
        assert_eq!(request.send().await.unwrap().status(), 400, "{origin}");
    }
    world.clock.advance(Duration::from_mins(16));
    assert_eq!(browser.press(&page, "decision", "allow").await.status, 400);
    assert!(world.provider.requests("authorize").is_empty());
}

#[tokio::test]
async fn the_way_back_of_one_browser_is_not_good_in_another() {
    let world = world().await;
    let client = world.client(REDIRECT).await;
    // A browser that stops at the redirect back from the provider.
    let callback = world.at("/oauth/callback");
    let mut browser = TestBrowser::new(&callback);
    let page = browser.open(&world.authorize_url(&client, &[])).await;
    let attackers = browser.press(&page, "decision", "allow").await;
    assert!(attackers.url.as_str().starts_with(&callback));
    let mut victim = TestBrowser::new(REDIRECT);
    let page = victim.open(attackers.url.as_str()).await;
    assert_eq!((page.status, page.parameter("code").is_some()), (400, true));
    assert!(page.text.contains("did not start the sign-in"));
}

#[tokio::test]
async fn a_response_of_another_server_ends_the_sign_in() {
    let world = world().await;
    let client = world.client(REDIRECT).await;
    world.provider.say_issuer("https://evil.example");
    let page = world.allow(&client, &[]).await;
    assert_eq!(page.parameter("error").as_deref(), Some("access_denied"));
    assert_eq!(page.parameter("code"), None);
    assert!(world.provider.requests("token").is_empty());
}

#[tokio::test]
async fn a_code_is_good_once_for_its_client_with_its_verifier_and_redirect_uri() {
    let world = world().await;
    let client = world.client(REDIRECT).await;
    let other = world.client(REDIRECT).await;
    let code = world.code(&client).await;
    let good = redemption(&client, &code);
    let with = |name: &'static str, value: &'static str| {
        good.map(|(known, own)| (known, if known == name { value } else { own }))
    };
    let long = "another-verifier-of-43-characters-or-more-as-it";
    for form in [
        redemption(&other, &code),
        with("code_verifier", long),
        with("code_verifier", "short"),
        with("redirect_uri", "http://127.0.0.1:9/other"),
        with("code", "forged"),
    ] {
        let (status, answer) = world.post("/oauth/token", &form).await;
        assert_eq!(
            (status, &answer["error"]),
            (400, &json!("invalid_grant")),
            "{form:?}"
        );
    }
    let (status, answer) = world.post("/oauth/token", &with("client_id", "")).await;
    assert_eq!((status, &answer["error"]), (401, &json!("invalid_client")));
    let (status, answer) = world.post("/oauth/token", &with("code_verifier", "")).await;
    assert_eq!((status, &answer["error"]), (400, &json!("invalid_request")));
    assert!(
        world.provider.requests("token").is_empty(),
        "the provider hears of none of it"
    );
    assert_eq!(
        world.post("/oauth/token", &good).await.0,
        200,
        "and the owner's is still good"
    );
    let (status, answer) = world.post("/oauth/token", &good).await;
    assert_eq!(
        (status, &answer["error"]),
        (400, &json!("invalid_grant")),
        "once"
    );
    assert_eq!(world.provider.requests("token").len(), 1);
}

#[tokio::test]
async fn a_code_ends_after_its_time() {
    let world = world().await;
    let client = world.client(REDIRECT).await;
    let code = world.code(&client).await;
    world.clock.advance(Duration::from_mins(6));
    let (status, answer) = world.redeem(&client, &code).await;
    assert_eq!((status, &answer["error"]), (400, &json!("invalid_grant")));
}

#[tokio::test]
async fn a_code_of_another_request_does_not_fit_this_ones_verifier() {
    let world = world().await;
    let client = world.client(REDIRECT).await;
    // The attacker injects a code into the victim's response, but the victim has another verifier.
    let own = challenge("the-attackers-own-verifier-of-43-characters-ok");
    let page = world.allow(&client, &[("code_challenge", &own)]).await;
    let code = page.parameter("code").unwrap();
    let (status, answer) = world.redeem(&client, &code).await;
    assert_eq!((status, &answer["error"]), (400, &json!("invalid_grant")));
}

#[tokio::test]
async fn a_refresh_token_is_good_once_and_for_its_client() {
    let world = world().await;
    let (client, tokens) = world.signed_in().await;
    let other = world.client(REDIRECT).await;
    let held = tokens["refresh_token"].as_str().unwrap();
    let access = tokens["access_token"].as_str().unwrap();
    for (client, token) in [(&other, held), (&client, access), (&client, "forged")] {
        let (status, answer) = world.refresh(client, token).await;
        assert_eq!((status, &answer["error"]), (400, &json!("invalid_grant")));
    }
    // Revoking the token of another client has no effect and reveals nothing.
    let form = [("client_id", other.as_str()), ("token", held)];
    assert_eq!(world.post("/oauth/revoke", &form).await.0, 200);
    assert_eq!(world.provider.sessions(), 1);
    assert_eq!(world.refresh(&client, held).await.0, 200);
    let (status, answer) = world.refresh(&client, held).await;
    assert_eq!((status, &answer["error"]), (400, &json!("invalid_grant")));
}

#[tokio::test]
async fn what_is_sealed_for_one_thing_is_not_good_for_another() {
    let world = world().await;
    let client = world.client(REDIRECT).await;
    let code = world.code(&client).await;
    let (_, tokens) = world.redeem(&client, &code).await;
    let held = tokens["refresh_token"].as_str().unwrap();
    for forged in [&code, held, "", "AAAA", &client[1..], &format!("{client}A")] {
        let mut browser = TestBrowser::new(REDIRECT);
        let page = browser.open(&world.authorize_url(forged, &[])).await;
        assert!(matches!(page.status, 400 | 401), "{forged}");
        assert!(!page.text.contains("<form"));
    }
    assert_eq!(world.refresh(&client, &code).await.0, 400);
    assert_eq!(world.redeem(&client, held).await.0, 400);
}

#[tokio::test]
async fn no_other_redirect_uri_than_a_registered_one_is_followed_or_told_anything() {
    let world = world().await;
    let client = world.client("https://app.example/cb").await;
    for uri in [
        "https://app.example/cb/",
        "https://app.example/cb?x=1",
        "https://app.example.evil.example/cb",
        "https://app.example@evil.example/cb",
        "https://app.example/cb/../x",
        "https://APP.example/cb",
        "javascript:alert(1)",
        REDIRECT,
    ] {
        let mut browser = TestBrowser::new(REDIRECT);
        let page = browser
            .open(&world.authorize_url(&client, &[("redirect_uri", uri)]))
            .await;
        assert_eq!(page.status, 400, "{uri}");
        assert!(
            !page.text.contains("<form") && !page.text.contains("refresh"),
            "{uri}"
        );
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_tells_a_program_and_leads_nobody_to_a_web_site() {
    let world = world().await;
    let program = world.client(REDIRECT).await;
    let site = world.client("https://evil.example/").await;
    let long = "s".repeat(1_025);
    let elsewhere = format!("{}.evil.example/mcp", world.url);
    for (name, value, error) in [
        ("response_type", "token", "unsupported_response_type"),
        ("code_challenge", "", "invalid_request"),
        ("code_challenge", "short", "invalid_request"),
        ("code_challenge_method", "plain", "invalid_request"),
        ("code_challenge_method", "", "invalid_request"),
        ("response_mode", "fragment", "invalid_request"),
        ("resource", "https://evil.example/mcp", "invalid_target"),
        ("resource", &elsewhere, "invalid_target"),
        ("state", &long, "invalid_request"),
    ] {
        let mut browser = TestBrowser::new(REDIRECT);
        let page = browser
            .open(&world.authorize_url(&program, &[(name, value)]))
            .await;
        assert_eq!(
            page.parameter("error").as_deref(),
            Some(error),
            "{name}={value}"
        );
        assert!(page.url.as_str().starts_with(REDIRECT));
        let there = [("redirect_uri", "https://evil.example/"), (name, value)];
        let page = browser.open(&world.authorize_url(&site, &there)).await;
        assert_eq!(page.status, 400, "{name}={value}");
        assert_eq!(page.url.host_str(), Some("127.0.0.1"));
        assert!(!page.text.contains("refresh"));
    }
    // Different parsers read a repeated parameter differently, so it is refused.
    let url = format!("{}&client_id={site}", world.authorize_url(&program, &[]));
    assert_eq!(TestBrowser::new(REDIRECT).open(&url).await.status, 400);
}

#[tokio::test]
async fn a_name_made_to_deceive_is_shown_with_its_hidden_characters_and_as_text() {
    let world = world().await;
    let name = "Claude\u{202e}edoC <b onclick=x>\"";
    let metadata = json!({ "client_name": name, "redirect_uris": [REDIRECT] });
    let (_, registered) = world.register(metadata).await;
    let client = registered["client_id"].as_str().unwrap();
    let page = TestBrowser::new(REDIRECT)
        .open(&world.authorize_url(client, &[]))
        .await;
    let shown = "Claude‹U+202E›edoC &lt;b onclick=x&gt;&quot;";
    assert!(page.text.contains(shown), "{}", page.text);
    assert!(page.text.contains("is not verified"));
}

#[tokio::test]
async fn oversize_and_malformed_bodies_are_refused_as_oauth_has_it() {
    let world = world().await;
    let large = "x".repeat(200_000);
    let form = "application/x-www-form-urlencoded";
    for (path, media_type, body, status) in [
        ("/oauth/register", "application/json", large.as_str(), 413),
        ("/oauth/register", "application/json", "{", 400),
        ("/oauth/register", "text/plain", "{}", 400),
        ("/oauth/token", form, &large, 413),
        ("/oauth/token", "application/json", "{}", 400),
        ("/oauth/token", form, "", 401),
        ("/oauth/token", form, "client_id=x", 400),
        (
            "/oauth/token",
            form,
            "client_id=x&client_id=y&grant_type=refresh_token",
            400,
        ),
        (
            "/oauth/token",
            form,
            "client_id=x&grant_type=password&username=a&password=b",
            400,
        ),
        (
            "/oauth/token",
            form,
            "client_id=x&grant_type=client_credentials",
            400,
        ),
        ("/oauth/revoke", form, &large, 413),
        ("/oauth/authorize", form, &large, 413),
    ] {
        let request = world
            .http
            .post(world.at(path))
            .header("content-type", media_type);
        let response = request.body(body.to_owned()).send().await.unwrap();
        assert_eq!(response.status(), status, "{path} {media_type} {body:.40}");
    }
    let many = "redirect_uri".repeat(20_000);
    let request = world.http.post(world.at("/oauth/register"));
    let request = request
        .header("host", "evil.example")
        .header("content-type", "application/json");
    assert_eq!(
        request.body(many).send().await.unwrap().status(),
        400,
        "another host"
    );
    let (_, registered) = world.register(json!({ "redirect_uris": [REDIRECT] })).await;
    assert!(registered["client_id"].is_string(), "and it still serves");
}
