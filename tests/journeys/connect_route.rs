//! Tests of the route of a source that acts in its callers' names: the gateway asks a caller to connect the source, and
//! then forwards the caller's requests with a token of the caller.

use std::sync::Arc;

use serde_json::{Value, json};
use wardgate_testkit::{Reply, System, TestApp, until};

use super::authorization::AuthorizationFakes;
use super::connect::{Browser, between, call_at, configuration};
use crate::WARDGATE;

const ROUTE: &str = "/mcp/upstream/notes";

/// The token for requests that are not made for a caller.
const LISTING: &str = "canary-access-listing";

const CATALOGUE: &str = r#"
sources:
  notes:
    type: mcp
    url: "${NOTES_URL}"
    auth: { type: authorization_code }
    listing_auth: { type: bearer, token: canary-access-listing }
    pins: first_use
    private: [127.0.0.0/8]
    tags: [clinic]
    classes: { content: public }
"#;

const POLICIES: &str = r#"
@id("doctor-uses")
permit (
  principal in Role::"Doctor",
  action in [Action::"call_tool", Action::"connect"],
  resource in Tag::"clinic"
);
@id("doctor-sees")
permit (principal in Role::"Doctor", action == Action::"show_clear", resource);
"#;

async fn start() -> (Arc<AuthorizationFakes>, TestApp) {
    let fakes = AuthorizationFakes::start().await;
    let nobody = (LISTING.to_owned(), "nobody".to_owned());
    fakes.tokens.lock().unwrap().extend([nobody]);
    let files = configuration(&fakes, CATALOGUE, POLICIES);
    let url = fakes.at("/mcp");
    let environment = [("NOTES_URL", url.as_str())];
    let app = TestApp::start_example(WARDGATE, files.path(), "clinic", &environment);
    app.until_ready(true).await;
    let ann = fakes.token("ann");
    until("the server's tools are known", async || {
        let names = app.client().tool_names(&ann).await;
        (!names.is_empty()).then_some(())
    })
    .await;
    (fakes, app)
}

/// Makes a call on the route as a client that can show its user a page.
async fn call(app: &TestApp, token: &str, further: Value) -> Reply {
    call_at(ROUTE, app, token, true, further).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_connects_the_source_of_a_route_and_what_they_send_is_carried_as_theirs() {
    let (fakes, app) = start().await;
    let (ann, ben) = (fakes.token("ann"), fakes.token("ben"));
    let asked = call(&app, &ann, json!({})).await.result();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let request = &asked["inputRequests"]["connect"];
    assert_eq!(request["params"]["mode"], "url");
    let url = request["params"]["url"].as_str().unwrap();

    "ann".clone_into(&mut fakes.login.lock().unwrap());
    let mut browser = Browser::new();
    let page = browser.open(url).await;
    let base = app.client().base().to_owned();
    let leaving = browser.decide(&base, &page, "allow").await;
    let next = between(&leaving.text, "href=\"", "\"").replace("&amp;", "&");
    let done = browser.open(&next).await;
    assert!(done.text.contains("Connected"), "{done:?}");

    // The waiting call continues, and the next call is forwarded.
    let back = json!({
        "requestState": asked["requestState"],
        "inputResponses": { "connect": { "action": "accept" } },
    });
    for further in [back, json!({})] {
        let result = call(&app, &ann, further).await.result();
        assert_eq!(result["content"][0]["text"], "you are ann", "{result}");
    }
    // The grant of one caller is not used for another.
    let of_ben = call(&app, &ben, json!({})).await.result();
    assert_eq!(of_ben["resultType"], "input_required", "{of_ben}");
    let seen = fakes.seen.lock().unwrap().clone();
    assert!(seen.iter().all(|token| token.starts_with("canary-access")));
    assert!(!format!("{:?}", app.records()).contains("canary"));
}
