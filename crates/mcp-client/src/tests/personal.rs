//! Tests of connections whose credentials are derived from the caller's token.

use std::sync::Arc;

use wardgate_egress::{AuthSettings, ClientProof, OAuthClient, ServerSettings};
use wardgate_testkit::caller;

use super::{Transport, UpstreamError, call, upstream};

#[tokio::test]
async fn a_request_goes_by_the_token_it_came_with_and_by_no_earlier_one() {
    let Transport::Http(mut settings) = crate::testing::http::settings("http://127.0.0.1:9/mcp")
    else {
        panic!();
    };
    settings.client.auth = AuthSettings::TokenExchange(OAuthClient {
        server: ServerSettings {
            token_url: Some("http://127.0.0.1:9/token".parse().unwrap()),
            ..ServerSettings::default()
        },
        client_id: "runner".to_owned(),
        proof: ClientProof::Secret("secret".to_owned().into()),
        scope: None,
        audience: None,
        resource: None,
    });
    let server = Arc::new(upstream(&Transport::Http(settings)));
    let of = |who: &str, token| server.for_caller(&caller(who, &[]), token).unwrap();
    let own = of("ann", Some("one"));
    assert!(Arc::ptr_eq(&own, &of("ann", Some("one"))));
    for other in [of("ann", Some("two")), of("ben", Some("one"))] {
        assert!(!Arc::ptr_eq(&own, &other));
    }
    let refused = call(&of("ann", None), "look", "{}").await;
    assert!(matches!(refused, Err(UpstreamError::NoCallerToken)));
}
