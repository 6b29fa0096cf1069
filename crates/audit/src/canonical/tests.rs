use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;
use wardgate_domain::{
    Ambient, BundleReference, CallId, Caller, CallerClaims, MemoryMethod, OperatorAction,
    OperatorFacts, ReadDecision, RefusalCount,
};
use wardgate_rpc::client::IdentifiedOperator;

use super::*;
use crate::record_content::RecordContent;
use crate::stored_row::StoredRow;

const CALL_ID: &str = "019a7318-2b40-7000-8000-000000000001";
const DECISION_ID: &str = "019a7318-2b40-7000-8000-000000000002";
const PERMIT_ID: &str = "019a7318-2b40-7000-8000-000000000003";
const CONVERSATION: &str = "019a7318-2b40-7000-8000-000000000004";

fn key() -> MacKey {
    MacKey::from_bytes(&[7; 32])
}

fn time() -> Timestamp {
    Timestamp::from_micros(1_762_869_000_000_042)
}

fn subject() -> CallFacts {
    CallFacts {
        call_id: CALL_ID.parse().unwrap(),
        issuer: "https://issuer.example".to_owned(),
        subject: "dr.yenji".to_owned(),
        tenant: String::new(),
        roles: vec!["Doctor".to_owned(), "Researcher".to_owned()],
        token_id: "t-1".to_owned(),
        client_ip: "192.0.2.7".to_owned(),
        protocol: "2026-07-28".to_owned(),
        requested_tool: "get_patient_records".to_owned(),
        tool: Some("get_medical_records".parse().unwrap()),
        definition_digest: Some(Digest::from_bytes([1; 32])),
        tags: None,
        arguments_digest: Digest::compute(b"NUGWI"),
        decision_id: Some(DECISION_ID.parse().unwrap()),
        policy_hash: Some(Digest::from_bytes([2; 32])),
        bundle: None,
        policies: vec!["doctor-reads".to_owned()],
        permit_id: Some(PERMIT_ID.parse().unwrap()),
        method: String::new(),
        approval_id: None,
        conversation: None,
    }
}

fn outcome() -> Outcome {
    Outcome {
        call: subject(),
        status: Status::Ok,
        reason: String::new(),
        rows: 12,
        rows_withheld: 3,
        fields_redacted: 24,
        phi: true,
        result_digest: Some(Digest::compute(b"NUGWI")),
        duration: Duration::from_micros(1_250),
        details: None,
    }
}

fn canonical(event: Event) -> String {
    let entry = RecordEntry::from_record(
        &Record {
            time: time(),
            event,
        },
        &key(),
        None,
    )
    .unwrap();
    String::from_utf8(entry.canonical).unwrap()
}

/// Returns `value` in the form of RFC 8785, by a second and simpler implementation.
fn canonicalise(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(name, _)| name.encode_utf16().collect::<Vec<_>>());
            let fields: Vec<_> = fields
                .into_iter()
                .map(|(name, value)| format!("{}:{}", quote_string(name), canonicalise(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(canonicalise).collect();
            format!("[{}]", items.join(","))
        }
        Value::String(text) => quote_string(text),
        Value::Number(number) => number.as_u64().unwrap().to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Null => "null".to_owned(),
    }
}

/// Escapes a string according to RFC 8785, section 3.2.2.2.
fn quote_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{8}' => quoted.push_str("\\b"),
            '\t' => quoted.push_str("\\t"),
            '\n' => quoted.push_str("\\n"),
            '\u{c}' => quoted.push_str("\\f"),
            '\r' => quoted.push_str("\\r"),
            control if control < ' ' => write!(quoted, "\\u{:04x}", u32::from(control)).unwrap(),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[test]
fn the_canonical_bytes_of_an_intent_are_these() {
    assert_eq!(
        canonical(Event::Intent(subject())),
        concat!(
            r#"{"arguments_hmac":"5f858e08b9af944f8c2498d0646b2983ebc0cab784b6a313a504995759ea968a","#,
            r#""call_id":"019a7318-2b40-7000-8000-000000000001","#,
            r#""caller":{"issuer":"https://issuer.example","roles":["Doctor","Researcher"],"#,
            r#""subject":"dr.yenji","token_id":"t-1"},"client_ip":"192.0.2.7","#,
            r#""decision":{"id":"019a7318-2b40-7000-8000-000000000002","policies":["doctor-reads"],"#,
            r#""policy_hash":"0202020202020202020202020202020202020202020202020202020202020202"},"#,
            r#""definition_digest":"0101010101010101010101010101010101010101010101010101010101010101","#,
            r#""event":"intent","permit_id":"019a7318-2b40-7000-8000-000000000003","#,
            r#""protocol":"2026-07-28","requested_tool":"get_patient_records","#,
            r#""time":"2025-11-11T13:50:00.000042Z","tool":"get_medical_records","version":1}"#,
        )
    );
}

#[test]
fn a_decision_by_policies_of_a_bundle_names_it() {
    let bundle = BundleReference {
        version: 7,
        digest: Digest::from_bytes([3; 32]),
    };
    let bytes = canonical(Event::Intent(CallFacts {
        bundle: Some(bundle),
        ..subject()
    }));
    let expected = concat!(
        r#""decision":{"bundle":{"digest":"0303030303030303030303030303030303030303030303030303030303030303","#,
        r#""version":7},"id":"019a7318-2b40-7000-8000-000000000002","#,
    );
    assert!(bytes.contains(expected), "{bytes}");
}

#[test]
fn a_record_tells_a_tool_without_tags_from_a_tool_whose_tags_are_unknown() {
    let tagged = |tags: Option<&[&str]>| {
        let tags = tags.map(|tags| tags.iter().map(ToString::to_string).collect());
        canonical(Event::Intent(CallFacts { tags, ..subject() }))
    };
    let bytes = tagged(Some(&["export", "clinical"]));
    assert!(
        bytes.contains(r#","tags":["export","clinical"],"time":"#),
        "{bytes}"
    );
    let bytes = tagged(Some(&[]));
    assert!(bytes.contains(r#","tags":[],"time":"#), "{bytes}");
    let bytes = tagged(None);
    assert!(!bytes.contains("tags"), "{bytes}");
}

#[test]
fn the_canonical_bytes_of_an_outcome_are_these() {
    let denied = Outcome {
        call: CallFacts {
            tool: None,
            definition_digest: None,
            decision_id: None,
            permit_id: None,
            roles: Vec::new(),
            client_ip: String::new(),
            ..subject()
        },
        status: Status::Denied,
        reason: "not_permitted".to_owned(),
        rows: 0,
        rows_withheld: 0,
        fields_redacted: 0,
        phi: false,
        result_digest: None,
        ..outcome()
    };
    assert_eq!(
        canonical(Event::Outcome(denied)),
        concat!(
            r#"{"arguments_hmac":"5f858e08b9af944f8c2498d0646b2983ebc0cab784b6a313a504995759ea968a","#,
            r#""call_id":"019a7318-2b40-7000-8000-000000000001","#,
            r#""caller":{"issuer":"https://issuer.example","subject":"dr.yenji","token_id":"t-1"},"#,
            r#""duration_us":1250,"event":"outcome","fields_redacted":0,"phi":false,"#,
            r#""protocol":"2026-07-28","reason":"not_permitted","requested_tool":"get_patient_records","#,
            r#""rows":0,"rows_withheld":0,"status":"denied","time":"2025-11-11T13:50:00.000042Z","#,
            r#""version":1,"violation":true}"#,
        )
    );
    let ok: Value = serde_json::from_str(&canonical(Event::Outcome(outcome()))).unwrap();
    assert_eq!(
        ok["result_hmac"], ok["arguments_hmac"],
        "the same text under the same key"
    );
    assert_eq!(
        (&ok["status"], &ok["violation"]),
        (&"ok".into(), &false.into())
    );
    assert_eq!((&ok["rows"], &ok["phi"]), (&12.into(), &true.into()));
}

#[test]
fn what_is_no_call_of_a_tool_says_its_method() {
    let read = Outcome {
        call: subject().by_method("resources/read"),
        ..outcome()
    };
    let read: Value = serde_json::from_str(&canonical(Event::Outcome(read))).unwrap();
    assert_eq!(read["method"], "resources/read");
}

#[test]
fn the_canonical_bytes_of_refusals_are_these() {
    let refusals = Refusals {
        window_start: Timestamp::from_seconds(1_762_869_000),
        counts: vec![
            RefusalCount {
                reason: "token_expired".to_owned(),
                client_ip: "192.0.2.7".to_owned(),
                subject: String::new(),
                count: 41,
            },
            RefusalCount {
                reason: "duplicate_key".to_owned(),
                client_ip: String::new(),
                subject: "dr.yenji".to_owned(),
                count: 1,
            },
        ],
    };
    assert_eq!(
        canonical(Event::Refusals(refusals)),
        concat!(
            r#"{"counts":[{"client_ip":"192.0.2.7","count":41,"reason":"token_expired"},"#,
            r#"{"count":1,"reason":"duplicate_key","subject":"dr.yenji"}],"event":"refusals","#,
            r#""time":"2025-11-11T13:50:00.000042Z","version":1,"#,
            r#""window_start":"2025-11-11T13:50:00.000000Z"}"#,
        )
    );
}

#[test]
fn a_change_that_the_policy_did_not_allow_says_whose_token_and_which_decision() {
    let change = AdminChange {
        actor: "ada".to_owned(),
        action: "tool.disable".to_owned(),
        target: "get_shifts".to_owned(),
        operator: Some(Box::new(OperatorFacts {
            issuer: "https://issuer.example".to_owned(),
            tenant: "north".to_owned(),
            roles: vec!["ToolManager".to_owned()],
            token_id: "t-1".to_owned(),
            decision: ReadDecision {
                id: "019a7318-2b40-7000-8000-000000000001".parse().unwrap(),
                allowed: false,
                policy_hash: Digest::from_bytes([2; 32]),
                bundle: None,
            },
        })),
        ..AdminChange::default()
    };
    assert_eq!(
        canonical(Event::AdminChange(change)),
        concat!(
            r#"{"action":"tool.disable","actor":"ada","#,
            r#""caller":{"issuer":"https://issuer.example","roles":["ToolManager"],"subject":"ada","tenant":"north","token_id":"t-1"},"#,
            r#""decision":{"id":"019a7318-2b40-7000-8000-000000000001","#,
            r#""policy_hash":"0202020202020202020202020202020202020202020202020202020202020202"},"#,
            r#""event":"admin_change","status":"denied","#,
            r#""target":"get_shifts","time":"2025-11-11T13:50:00.000042Z","version":1}"#,
        )
    );
}

#[test]
fn a_change_by_an_operator_names_the_bundle_of_the_policies_that_decided() {
    let change = |version| AdminChange {
        actor: "ada".to_owned(),
        action: "tool.disable".to_owned(),
        target: "get_shifts".to_owned(),
        operator: Some(Box::new(OperatorFacts {
            issuer: "https://issuer.example".to_owned(),
            tenant: String::new(),
            roles: Vec::new(),
            token_id: "t-1".to_owned(),
            decision: ReadDecision {
                id: DECISION_ID.parse().unwrap(),
                allowed: true,
                policy_hash: Digest::from_bytes([2; 32]),
                bundle: Some(BundleReference {
                    version,
                    digest: Digest::from_bytes([3; 32]),
                }),
            },
        })),
        ..AdminChange::default()
    };
    let bytes = canonical(Event::AdminChange(change(7)));
    let expected = concat!(
        r#""decision":{"bundle":{"digest":"0303030303030303030303030303030303030303030303030303030303030303","#,
        r#""version":7},"id":"019a7318-2b40-7000-8000-000000000002","#,
    );
    assert!(bytes.contains(expected), "{bytes}");
    let value: Value = serde_json::from_str(&bytes).unwrap();
    assert_eq!(canonicalise(&value), bytes);
    let too_large = RecordEntry::of_admin_change(time(), &change(MAX_INTEGER + 1)).unwrap_err();
    assert!(too_large.to_string().contains("operator.bundle.version"));
}

#[test]
fn the_canonical_bytes_of_an_operators_change_are_these() {
    let change = AdminChange {
        actor: "ada".to_owned(),
        action: "tool.disable".to_owned(),
        target: "get_shifts".to_owned(),
        scope: "role:Nurse".to_owned(),
        ..AdminChange::default()
    };
    assert_eq!(
        canonical(Event::AdminChange(change.clone())),
        concat!(
            r#"{"action":"tool.disable","actor":"ada","event":"admin_change","scope":"role:Nurse","#,
            r#""target":"get_shifts","time":"2025-11-11T13:50:00.000042Z","version":1}"#,
        )
    );
    let failed = AdminChange {
        scope: String::new(),
        detail_digest: Some(Digest::from_bytes([1; 32])),
        failed: true,
        ..change
    };
    assert_eq!(
        canonical(Event::AdminChange(failed)),
        concat!(
            r#"{"action":"tool.disable","actor":"ada","#,
            r#""detail_digest":"0101010101010101010101010101010101010101010101010101010101010101","#,
            r#""event":"admin_change","status":"error","#,
            r#""target":"get_shifts","time":"2025-11-11T13:50:00.000042Z","version":1}"#,
        )
    );
}

#[test]
fn the_canonical_bytes_of_what_an_operator_reads_are_these() {
    let caller = Caller::from_verified(CallerClaims {
        issuer: "https://issuer.example".to_owned(),
        subject: "auditor.lee".to_owned(),
        tenant: "north".to_owned(),
        roles: vec!["Auditor".to_owned()],
        attributes: BTreeMap::new(),
        token_id: "t-1".to_owned(),
        expires_at: Timestamp::from_seconds(0),
    });
    let operator = IdentifiedOperator {
        caller,
        action: OperatorAction::ReadRecord,
        decision: ReadDecision {
            id: DECISION_ID.parse().unwrap(),
            allowed: false,
            policy_hash: Digest::from_bytes([2; 32]),
            bundle: None,
        },
    };
    let reading = operator.change("audit.query", "status=denied");
    let entry = RecordEntry::of_admin_change(time(), &reading).unwrap();
    assert_eq!(
        String::from_utf8(entry.canonical.clone()).unwrap(),
        concat!(
            r#"{"action":"audit.query","actor":"auditor.lee","caller":{"issuer":"https://issuer.example","#,
            r#""roles":["Auditor"],"subject":"auditor.lee","tenant":"north","token_id":"t-1"},"#,
            r#""decision":{"id":"019a7318-2b40-7000-8000-000000000002","#,
            r#""policy_hash":"0202020202020202020202020202020202020202020202020202020202020202"},"#,
            r#""event":"admin_change","status":"denied","target":"status=denied","#,
            r#""time":"2025-11-11T13:50:00.000042Z","version":1}"#,
        )
    );
    assert_eq!(entry.subject.as_deref(), Some("auditor.lee"));
    assert_eq!(entry.status, Some("denied"));
    let content = RecordContent::parse(&entry.canonical).unwrap();
    assert!(content.is_of_tenant("north") && !content.is_of_tenant("south"));
}

#[test]
fn a_call_that_waits_for_an_approval_names_it_and_is_no_violation() {
    let approval = "019a7318-2b40-7000-8000-000000000005";
    let waiting = Outcome {
        call: CallFacts {
            approval_id: Some(approval.parse().unwrap()),
            ..subject()
        },
        status: Status::Denied,
        reason: "approval_required".to_owned(),
        ..outcome()
    };
    let record = canonical(Event::Outcome(waiting.clone()));
    let begins = format!(r#"{{"approval_id":"{approval}","arguments_hmac":""#);
    assert!(record.starts_with(&begins), "{record}");
    assert!(record.ends_with(r#""violation":false}"#), "{record}");
    let refused = Outcome {
        reason: "forbidden".to_owned(),
        ..waiting
    };
    assert!(canonical(Event::Outcome(refused)).ends_with(r#""violation":true}"#));
}

#[test]
fn the_canonical_bytes_of_a_use_of_the_memory_are_these() {
    let read = MemoryAccess {
        call: CallFacts {
            requested_tool: String::new(),
            tool: None,
            decision_id: None,
            ..subject()
        },
        method: MemoryMethod::GetContext,
        conversation: Some(CONVERSATION.parse().unwrap()),
        messages: 3,
        withheld: 1,
        phi: true,
        status: Status::Ok,
        reason: String::new(),
        duration: Duration::from_micros(1_250),
    };
    assert_eq!(
        canonical(Event::MemoryAccess(read.clone())),
        concat!(
            r#"{"arguments_hmac":"5f858e08b9af944f8c2498d0646b2983ebc0cab784b6a313a504995759ea968a","#,
            r#""call_id":"019a7318-2b40-7000-8000-000000000001","#,
            r#""caller":{"issuer":"https://issuer.example","roles":["Doctor","Researcher"],"#,
            r#""subject":"dr.yenji","token_id":"t-1"},"client_ip":"192.0.2.7","#,
            r#""conversation":"019a7318-2b40-7000-8000-000000000004","duration_us":1250,"#,
            r#""event":"memory_access","messages":3,"method":"memory/get_context","phi":true,"#,
            r#""protocol":"2026-07-28","status":"ok","time":"2025-11-11T13:50:00.000042Z","#,
            r#""version":1,"violation":false,"withheld":1}"#,
        )
    );
    let of_another = MemoryAccess {
        call: CallFacts {
            bundle: Some(BundleReference {
                version: 7,
                digest: Digest::from_bytes([3; 32]),
            }),
            policies: Vec::new(),
            ..subject()
        },
        ..read.clone()
    };
    let recalled = canonical(Event::MemoryAccess(of_another));
    let decision = concat!(
        r#","decision":{"bundle":{"digest":"0303030303030303030303030303030303030303030303030303030303030303","#,
        r#""version":7},"id":"019a7318-2b40-7000-8000-000000000002","policy_hash":"02020202"#,
    );
    assert!(recalled.contains(decision), "{recalled}");
    let denied = MemoryAccess {
        conversation: None,
        status: Status::Denied,
        reason: "denied".to_owned(),
        ..read
    };
    let canonical = canonical(Event::MemoryAccess(denied));
    let value: Value = serde_json::from_str(&canonical).unwrap();
    assert_eq!(canonicalise(&value), canonical);
    assert_eq!(value.get("conversation"), None);
    assert_eq!(value["violation"], true);
}

#[test]
fn the_leaf_hash_is_the_one_of_rfc_6962() {
    // The hash of the empty leaf is from the test vectors of certificate-transparency-go.
    assert_eq!(
        leaf_hash(b"").to_string(),
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    );
}

#[test]
fn an_unknown_outcome_says_who_and_nothing_of_what_followed() {
    let intent = RecordEntry::from_record(
        &Record {
            time: time(),
            event: Event::Intent(subject()),
        },
        &key(),
        None,
    )
    .unwrap();
    let stored = StoredRow {
        sequence: 0,
        leaf_hash: intent.leaf_hash,
        canonical: intent.canonical.clone(),
        details: None,
    };
    let open = OpenIntent::from_stored_row(&stored).unwrap();
    assert_eq!(open.time, time());
    let now = time().plus(Duration::from_secs(60));
    let closed = open.unknown_outcome(now).unwrap();

    let mut expected: Value = serde_json::from_slice(&intent.canonical).unwrap();
    expected["event"] = "outcome".into();
    expected["status"] = "unknown".into();
    expected["reason"] = "no_outcome".into();
    expected["violation"] = false.into();
    expected["time"] = now.to_string().into();
    assert_eq!(
        String::from_utf8(closed.canonical).unwrap(),
        canonicalise(&expected)
    );
    assert_eq!(closed.status, Some("unknown"));
    assert_eq!(closed.call_id, intent.call_id);
}

#[test]
fn what_has_no_exact_form_is_refused() {
    let fails = |change: &dyn Fn(&mut Record)| {
        let mut record = Record {
            time: time(),
            event: Event::Outcome(outcome()),
        };
        change(&mut record);
        RecordEntry::from_record(&record, &key(), None)
            .unwrap_err()
            .to_string()
    };
    let with = |change: fn(&mut Outcome)| {
        fails(&|record| match &mut record.event {
            Event::Outcome(outcome) => change(outcome),
            _ => unreachable!("it is an outcome"),
        })
    };
    assert!(with(|outcome| outcome.rows = 1 << 53).contains("`outcome.rows`"));
    assert!(with(|outcome| outcome.duration = Duration::MAX).contains("`outcome.duration`"));
    assert!(with(|outcome| outcome.reason = "x".repeat(MAX_BYTES)).contains("more than 65535"));
    assert!(
        fails(&|record| record.time = Timestamp::from_micros(i64::MAX)).contains("`record.time`")
    );
}

#[test]
fn a_column_fits_any_index_and_any_store() {
    assert_eq!(column("a\0b"), "a\u{fffd}b");
    assert_eq!(column(&"é".repeat(9_999)).chars().count(), MAX_COLUMN);
}

prop_compose! {
    fn any_text()(text in "(\\PC|[\\x00-\\x1f\\x7f\"\\\\/\u{2028}\u{1f600}]){0,40}") -> String { text }
}

prop_compose! {
    fn any_outcome()(
        texts in prop::collection::vec(any_text(), 9),
        roles in prop::collection::vec(any_text(), 0..4),
        policies in prop::collection::vec(any_text(), 0..4),
        counts in prop::collection::vec(0..=MAX_INTEGER, 3),
        micros in 0..=MAX_INTEGER,
        present in any::<[bool; 5]>(),
        phi in any::<bool>(),
        status in prop::sample::select(&Status::ALL),
        random in any::<[u8; 32]>(),
    ) -> Outcome {
        let ambient = Ambient::system();
        let mut texts = texts.into_iter();
        let mut text = || texts.next().unwrap();
        let digest = Digest::from_bytes(random);
        Outcome {
            details: None,
            call: CallFacts {
                call_id: CallId::new(&ambient),
                issuer: text(),
                subject: text(),
                tenant: text(),
                tags: present[1].then(|| roles.as_slice().into()),
                roles,
                token_id: text(),
                client_ip: text(),
                protocol: text(),
                requested_tool: text(),
                tool: present[0].then(|| "get_shifts".parse().unwrap()),
                definition_digest: present[1].then_some(digest),
                arguments_digest: digest,
                decision_id: present[2].then(|| DECISION_ID.parse().unwrap()),
                policy_hash: present[3].then_some(digest),
                bundle: present[4].then_some(BundleReference { version: counts[0].max(1), digest }),
                policies,
                permit_id: present[4].then(|| PERMIT_ID.parse().unwrap()),
                method: text(),
                approval_id: present[2].then(|| PERMIT_ID.parse().unwrap()),
                conversation: present[1].then_some(digest),
            },
            status,
            reason: text(),
            rows: counts[0],
            rows_withheld: counts[1],
            fields_redacted: counts[2],
            phi,
            result_digest: present[0].then_some(digest),
            duration: Duration::from_micros(micros),
        }
    }
}

proptest! {
    #[test]
    fn canonical_bytes_are_canonical_whatever_a_client_sends(outcome in any_outcome()) {
        let (subject, asked) = (outcome.call.subject.clone(), outcome.call.requested_tool.clone());
        for event in [Event::Intent(outcome.call.clone()), Event::Outcome(outcome)] {
            let canonical = canonical(event);
            let value: Value = serde_json::from_str(&canonical).unwrap();
            prop_assert_eq!(canonicalise(&value), canonical.clone());
            // No control character is left, so no text can look like the start of another line.
            prop_assert!(!canonical.bytes().any(|byte| byte < b' '));
            prop_assert_eq!(&value["caller"]["subject"], &Value::from(subject.as_str()));
            prop_assert_eq!(value["requested_tool"].as_str().unwrap_or_default(), asked.as_str());
        }
    }

    #[test]
    fn a_client_cannot_add_a_field(text in any_text()) {
        let forged = format!(r#"{text}","violation":false,"x":"{text}"#);
        let subject = CallFacts { requested_tool: forged.clone(), tool: None, ..subject() };
        let denied = Outcome { call: subject, status: Status::Denied, ..outcome() };
        let value: Value = serde_json::from_str(&canonical(Event::Outcome(denied))).unwrap();
        prop_assert_eq!(&value["violation"], &Value::Bool(true));
        prop_assert_eq!(value.get("x"), None);
        prop_assert_eq!(value["requested_tool"].as_str(), Some(forged.as_str()));
    }
}
