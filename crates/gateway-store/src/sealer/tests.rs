use wardgate_domain::CallerClaims;
use wardgate_testkit::{TestClock, claims};

use super::*;

fn caller(issuer: &str, subject: &str, token: &str) -> Caller {
    Caller::from_verified(CallerClaims {
        issuer: issuer.to_owned(),
        token_id: token.to_owned(),
        ..claims(subject, &[])
    })
}

fn sealer() -> (Sealer, TestClock) {
    let clock = TestClock::at(1_800_000_000);
    let key = SessionKey::from_bytes(&[7; 32]);
    (Sealer::new(&key, clock.ambient()), clock)
}

const SESSION: Purpose = Purpose::Session;

#[test]
fn a_session_opens_for_its_caller_with_whatever_token() {
    let (sealer, _) = sealer();
    let text = sealer
        .seal(SESSION, &caller("i", "s", "1"), "x", &"own id")
        .unwrap();
    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
    let opened: Option<String> = sealer.open(SESSION, &caller("i", "s", "2"), "x", &text);
    assert_eq!(opened.as_deref(), Some("own id"));
}

#[test]
fn it_opens_for_nobody_and_nothing_else() {
    let (sealer, clock) = sealer();
    let own = caller("i", "s", "1");
    let text = sealer.seal(SESSION, &own, "x", &1).unwrap();
    let opens = |sealer: &Sealer, purpose, caller: &Caller, within: &str, text: &str| {
        sealer.open::<i32>(purpose, caller, within, text).is_some()
    };
    assert!(opens(&sealer, SESSION, &own, "x", &text));
    assert!(!opens(&sealer, SESSION, &caller("i", "t", "1"), "x", &text));
    assert!(!opens(&sealer, SESSION, &caller("j", "s", "1"), "x", &text));
    assert!(!opens(&sealer, SESSION, &own, "y", &text));
    assert!(!opens(&sealer, Purpose::Event, &own, "x", &text));
    for bent in ["", "AAAA", &text[1..], &"A".repeat(10_000), "ü"] {
        assert!(!opens(&sealer, SESSION, &own, "x", bent));
    }
    let other = Sealer::new(&SessionKey::from_bytes(&[8; 32]), Ambient::system());
    assert!(!opens(&other, SESSION, &own, "x", &text));
    clock.advance(std::time::Duration::from_hours(25));
    assert!(!opens(&sealer, SESSION, &own, "x", &text));
}

#[test]
fn what_no_header_holds_is_not_handed_out() {
    let (sealer, _) = sealer();
    let long = "x".repeat(MAX_IN_HEADER);
    assert!(
        sealer
            .seal(SESSION, &caller("i", "s", "1"), "x", &long)
            .is_none()
    );
}
