//! Tokens that an operator revoked.

use tokio::sync::watch;
use wardgate_domain::{RevocationKind, RevocationSet, RevocationTarget};

use super::*;

#[tokio::test]
async fn no_token_is_accepted_before_the_revocations_were_read_and_a_known_one_not_once_revoked() {
    let key = TestKey::ed25519();
    let (revocations, followed) = watch::channel(None);
    let (_server, authenticator) = start_key_server(&[key.jwk("ed")]).await;
    let authenticator = Arc::into_inner(authenticator).unwrap();
    let authenticator = authenticator.with_revocations(RevocationWatch::new(followed));
    let token = good(&key, "ed");
    let unknown = authenticator.caller(&token).await.unwrap_err();
    assert_eq!(unknown, TokenRefusal::RevocationsUnknown);
    assert_eq!(unknown.status(), StatusCode::SERVICE_UNAVAILABLE);

    revocations.send_replace(Some(Arc::default()));
    let caller = authenticator.caller(&token).await.unwrap();
    let target = RevocationTarget {
        kind: RevocationKind::Subject,
        name: caller.subject().to_owned(),
        issuer: None,
        tenant: None,
    };
    let set: RevocationSet = [target].into_iter().collect();
    revocations.send_replace(Some(Arc::new(set)));
    let revoked = authenticator.caller(&token).await.unwrap_err();
    assert_eq!(revoked, TokenRefusal::TokenRevoked);
    assert_eq!(revoked.status(), StatusCode::UNAUTHORIZED);
}
