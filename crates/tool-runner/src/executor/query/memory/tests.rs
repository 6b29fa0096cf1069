use std::sync::Arc;

use wardgate_domain::Timestamp;

use super::*;
use crate::platform::Platform;

#[test]
fn without_a_memory_service_the_catalogue_says_what_to_configure() {
    let alone = Sources::new(&Arc::new(Platform::new()), None, None);
    let refused = Memory.check(&alone).unwrap_err().to_string();
    assert!(
        refused.starts_with("tool_runner.links.memory is missing"),
        "{refused}"
    );
}

#[test]
fn arguments_that_do_not_fit_the_question_are_refused_without_being_repeated() {
    for arguments in [
        json!({ "conversation_id": "secret", "content": 7 }),
        json!({ "conversation_id": "secret", "content": "x", "role": "tool" }),
        json!({ "conversation_id": "secret", "content": "x", "source": "person" }),
        json!({ "conversation_id": "secret", "content": "x", "message_id": "turn/0" }),
    ] {
        let arguments = arguments.as_object().unwrap().clone();
        let refused = parse_arguments::<Add>(&arguments)
            .err()
            .unwrap()
            .to_string();
        assert!(!refused.contains("secret"), "{refused}");
    }
}

#[test]
fn what_a_tool_gave_is_not_passed_on_as_this_tools_own() {
    let said_by = |role| Message {
        id: "m".parse().unwrap(),
        position: 1,
        turn: None,
        time: Timestamp::from_seconds(0),
        role,
        source: Source::Model,
        author: String::new(),
        content: "x".to_owned(),
        calls: String::new().into(),
        call: None,
        is_error: false,
        covers_to: 0,
        policy_hash: None,
        withheld: false,
    };
    assert!(!may_pass_on(&said_by(Role::Tool)));
    for role in [Role::User, Role::Assistant] {
        assert!(may_pass_on(&said_by(role)));
    }
}
