//! Tests of P1: without a permit no tool runs.

use std::time::Duration;

use bytes::Bytes;
use tonic::{Code, Status};
use wardgate_domain::{BundleReference, Digest, PermitTerms, RowRule, Timestamp};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::policy::v1 as policy;

use super::harness::{Harness, VALIDITY, caller, rule};
use crate::tests::database;

const WRITTEN: &str = "SELECT count(*) FROM written";
const LINE: &str = r#"{"line":"x"}"#;

fn assert_refused(status: &Status, case: &str) {
    assert_eq!(status.code(), Code::PermissionDenied, "{case}: {status}");
    assert_eq!(
        wardgate_rpc::reason_of(status),
        ErrorReason::PermitRefused,
        "{case}"
    );
}

/// A function that makes a permit invalid.
type Spoil = fn(&mut PermitTerms);

#[tokio::test]
async fn p1_no_permit_no_run() {
    let database = database::sqlite().await;
    let harness = Harness::start(&database).await;
    let good = harness.terms("append").await;

    let none = harness.request("append", LINE.as_bytes(), None);
    assert_refused(&harness.send(none).await.unwrap_err(), "no permit");
    let mut empty = harness.request("append", LINE.as_bytes(), None);
    empty.permit = Some(policy::SignedPermit::default());
    assert_refused(&harness.send(empty).await.unwrap_err(), "an empty permit");

    let wrong: [(&str, Spoil); 11] = [
        ("expired", |terms| terms.expires_at = terms.not_before),
        ("not yet valid", |terms| terms.not_before = terms.expires_at),
        ("another caller", |terms| {
            terms.caller_digest = caller("d2").digest();
        }),
        ("another tool", |terms| terms.tool = "echo".parse().unwrap()),
        ("an alias", |terms| {
            terms.tool = "rows_by_rule".parse().unwrap();
        }),
        ("a different definition", |terms| {
            terms.definition_digest = Digest::compute(b"old");
        }),
        ("different arguments", |terms| {
            terms.arguments_digest = Some(Digest::compute(b"{}"));
        }),
        ("arguments spelt otherwise", |terms| {
            terms.arguments_digest = Some(Digest::compute(br#"{"line": "x"}"#));
        }),
        ("a rule for rows that are not governed", |terms| {
            terms.row_rule = Some(rule(&[]));
        }),
        ("a rule without limits for such rows", |terms| {
            terms.row_rule = Some(RowRule {
                all: true,
                ..rule(&[])
            });
        }),
        ("an empty validity", |terms| {
            terms.not_before = terms.not_before.plus(Duration::from_micros(1));
            terms.expires_at = terms.not_before;
        }),
    ];
    for (case, spoil) in wrong {
        let mut terms = good.clone();
        spoil(&mut terms);
        let permit = harness.signer.sign(&terms);
        let request = harness.request("append", LINE.as_bytes(), Some(&permit));
        assert_refused(&harness.send(request).await.unwrap_err(), case);
    }

    let stranger = Harness::start(&database).await;
    let forged = stranger.signer.sign(&good);
    let request = harness.request("append", LINE.as_bytes(), Some(&forged));
    assert_refused(&harness.send(request).await.unwrap_err(), "another key");

    let genuine = policy::SignedPermit::from(&harness.signer.sign(&good));
    for part in 0..2 {
        let length = if part == 0 {
            genuine.permit.len()
        } else {
            genuine.signature.len()
        };
        for at in 0..length {
            let mut altered = genuine.clone();
            let bytes = if part == 0 {
                &mut altered.permit
            } else {
                &mut altered.signature
            };
            let mut changed = bytes.to_vec();
            changed[at] ^= 1;
            *bytes = Bytes::from(changed);
            let mut request = harness.request("append", LINE.as_bytes(), None);
            request.permit = Some(altered);
            assert_refused(
                &harness.send(request).await.unwrap_err(),
                "an altered permit",
            );
        }
    }

    assert_eq!(database.number(WRITTEN).await, 0, "something ran");
    harness.call_with(&good, LINE).await.unwrap();
    assert_eq!(database.number(WRITTEN).await, 1, "the good permit runs");
}

#[tokio::test]
async fn governed_rows_need_a_rule_that_fits() {
    let database = database::sqlite().await;
    let harness = Harness::start(&database).await;
    let good = harness.terms("governed_rows").await;
    let wrong: [(&str, Spoil); 3] = [
        ("no rule", |terms| terms.row_rule = None),
        ("another type of row", |terms| {
            terms.row_rule.as_mut().unwrap().entity = "Other".to_owned();
        }),
        ("no policy", |terms| {
            let rule = terms.row_rule.as_mut().unwrap();
            rule.all = false;
            rule.policies_json = vec!["{}".to_owned()];
        }),
    ];
    for (case, spoil) in wrong {
        let mut terms = good.clone();
        spoil(&mut terms);
        assert_refused(&harness.call_with(&terms, "{}").await.unwrap_err(), case);
    }
}

#[tokio::test]
async fn a_permit_seen_before_still_ends() {
    let database = database::sqlite().await;
    let harness = Harness::start(&database).await;
    let terms = harness.terms("append").await;
    harness.call_with(&terms, r#"{"line":"1"}"#).await.unwrap();
    harness.call_with(&terms, r#"{"line":"2"}"#).await.unwrap();
    harness.advance(VALIDITY);
    let late = harness
        .call_with(&terms, r#"{"line":"3"}"#)
        .await
        .unwrap_err();
    assert_refused(&late, "expired in the cache");
    assert_eq!(database.number(WRITTEN).await, 2);
}

#[tokio::test]
async fn a_permit_seen_before_still_belongs_to_its_caller_and_arguments() {
    let database = database::sqlite().await;
    let mut harness = Harness::start(&database).await;
    let mut terms = harness.terms("append").await;
    terms.arguments_digest = Some(Digest::compute(LINE.as_bytes()));
    harness.call_with(&terms, LINE).await.unwrap();
    let other = harness
        .call_with(&terms, r#"{"line":"y"}"#)
        .await
        .unwrap_err();
    assert_refused(&other, "different arguments");
    harness.caller = caller("d2");
    assert_refused(
        &harness.call_with(&terms, LINE).await.unwrap_err(),
        "another caller",
    );
    assert_eq!(database.number(WRITTEN).await, 1);
}

#[tokio::test]
async fn only_canonical_names_are_tools() {
    let database = database::sqlite().await;
    let harness = Harness::start(&database).await;
    let permit = harness.signer.sign(&harness.terms("governed_rows").await);
    for name in ["rows_by_rule", "GOVERNED_ROWS", "nothing", ""] {
        let status = harness
            .send(harness.request(name, b"{}", Some(&permit)))
            .await
            .unwrap_err();
        assert_eq!(
            wardgate_rpc::reason_of(&status),
            ErrorReason::UnknownTool,
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_message_without_its_fields_is_refused_by_name() {
    let database = database::sqlite().await;
    let harness = Harness::start(&database).await;
    let permit = harness.signer.sign(&harness.terms("echo").await);
    let mut nameless = harness.request("echo", b"{}", Some(&permit));
    nameless.call_id = "call-1".to_owned();
    let mut anonymous = harness.request("echo", b"{}", Some(&permit));
    anonymous.caller = None;
    for (request, field) in [(nameless, "call_id"), (anonymous, "caller")] {
        let status = harness.send(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(field), "{status}");
    }
}

#[tokio::test]
async fn a_permit_does_not_run_for_a_caller_whose_token_has_ended() {
    let database = database::sqlite().await;
    let harness = Harness::start(&database).await;
    let terms = harness.terms("append").await;
    let permit = harness.signer.sign(&terms);
    let request = |ends: Timestamp| {
        let mut request = harness.request("append", LINE.as_bytes(), Some(&permit));
        request.caller.as_mut().unwrap().expires_at = Some(ends.into());
        request
    };
    let now = harness.ambient.now();
    let ended = harness.send(request(now)).await.unwrap_err();
    assert_refused(&ended, "a token that has ended");
    assert_eq!(database.number(WRITTEN).await, 0);
    let still_good = now.plus(Duration::from_secs(1));
    harness.send(request(still_good)).await.unwrap();
}

#[tokio::test]
async fn what_other_processes_ask_for_runs_on_record_or_not_at_all() {
    let database = database::sqlite().await;
    let harness = Harness::start_recording(&database).await;
    for (tool, arguments) in [("append", LINE), ("plain_rows", "{}")] {
        let bundle = BundleReference {
            version: 7,
            digest: Digest::compute(b"bundle"),
        };
        let terms = PermitTerms {
            bundle: Some(bundle),
            ..harness.terms(tool).await
        };
        harness.call_with(&terms, arguments).await.unwrap();
        let execution = harness.audit.executions.entries().pop().unwrap();
        assert_eq!(execution.subject, "d1");
        assert_eq!(execution.tool.unwrap().as_str(), tool);
        assert_eq!(
            execution.arguments_digest,
            Digest::compute(arguments.as_bytes())
        );
        assert_eq!(execution.permit_id, Some(terms.id));
        assert_eq!(execution.decision_id, Some(terms.decision_id));
        assert_eq!(execution.bundle, Some(bundle));
    }
    assert_eq!(harness.audit.executions.count(), 2);

    harness.audit.fails();
    for (tool, arguments) in [("append", LINE), ("plain_rows", "{}")] {
        let terms = harness.terms(tool).await;
        let status = harness.call_with(&terms, arguments).await.unwrap_err();
        let reason = wardgate_rpc::reason_of(&status);
        assert_eq!(reason, ErrorReason::NotDurable, "{tool}: {status}");
    }
    assert_eq!(database.number(WRITTEN).await, 1, "the first one alone");
}
