//! Tests of requests about connections: only the person whose call required a connection can be connected.

use std::time::Duration;

use bytes::Bytes;
use tonic::Status;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;

use super::harness::{Harness, caller};
use crate::tests::database;

/// A source that acts in its callers' names. Nothing serves the token endpoint.
const TOOLS: &str = r"
sources:
  mail:
    type: http
    base_url: https://mail.example
    auth:
      type: authorization_code
      authorization_url: https://id.example/authorize
      token_url: https://127.0.0.1:1/token
      client_id: gateway
tools:
  - name: read_mail
    description: Reads mail.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: {} }
    execute: { type: http, source: mail, path: /mail }
    result: { classes: { subject: none } }
";

fn person(subject: &str) -> pb::Person {
    pb::Person {
        tenant: String::new(),
        issuer: "https://issuer.example".to_owned(),
        subject: subject.to_owned(),
    }
}

/// Calls the tool as `who`, and returns the connection that the call requires.
async fn required_connection(harness: &mut Harness, who: &str) -> pb::Connect {
    harness.caller = caller(who);
    let terms = harness.terms("read_mail").await;
    let permit = harness.signer.sign(&terms);
    let request = harness.request("read_mail", b"{}", Some(&permit));
    let mut client = harness.client.clone();
    let mut events = client.call_tool(request).await.unwrap().into_inner();
    match events.message().await.unwrap().unwrap().event.unwrap() {
        pb::call_tool_response::Event::InputRequired(required) => required.connect.unwrap(),
        other => panic!("no connection is required: {other:?}"),
    }
}

async fn describe(
    harness: &Harness,
    person: &pb::Person,
    connect: &pb::Connect,
) -> Result<(), Status> {
    let request = pb::DescribeConnectionRequest {
        person: Some(person.clone()),
        connect: Some(connect.clone()),
    };
    let mut client = harness.client.clone();
    client.describe_connection(request).await.map(drop)
}

/// Starts a connection and returns its state.
async fn start(
    harness: &Harness,
    person: &pb::Person,
    connect: &pb::Connect,
) -> Result<Bytes, Status> {
    let request = pb::StartConnectionRequest {
        person: Some(person.clone()),
        connect: Some(connect.clone()),
        redirect_uri: "https://gateway.example/connect/callback".to_owned(),
        state: "state-1".to_owned(),
        client_metadata_url: String::new(),
    };
    let mut client = harness.client.clone();
    let started = client.start_connection(request).await?;
    Ok(started.into_inner().pending)
}

async fn finish(
    harness: &Harness,
    person: &pb::Person,
    connect: &pb::Connect,
    pending: &Bytes,
) -> Result<(), Status> {
    let request = pb::FinishConnectionRequest {
        person: Some(person.clone()),
        source: connect.source.clone(),
        pending: pending.clone(),
        code: "code-1".to_owned(),
        issuer: None,
        caller_proof: connect.caller_proof.clone(),
    };
    let mut client = harness.client.clone();
    client.finish_connection(request).await.map(drop)
}

/// Checks that every request about this connection is refused.
async fn check_refused(
    harness: &Harness,
    person: &pb::Person,
    connect: &pb::Connect,
    pending: &Bytes,
    what: &str,
) {
    for refused in [
        describe(harness, person, connect).await,
        start(harness, person, connect).await.map(drop),
        finish(harness, person, connect, pending).await,
    ] {
        let reason = wardgate_rpc::reason_of(&refused.unwrap_err());
        assert_eq!(reason, ErrorReason::PermitRefused, "{what}");
    }
}

#[tokio::test]
async fn a_source_is_connected_only_for_the_person_whose_permitted_call_required_it() {
    let database = database::sqlite().await;
    let mut harness = Harness::with(&database, TOOLS, |_| ()).await;
    let connect = required_connection(&mut harness, "ann").await;
    let of_ben = required_connection(&mut harness, "ben").await;
    let (ann, ben) = (person("ann"), person("ben"));
    let invented = person("invented");
    describe(&harness, &ann, &connect).await.unwrap();
    let pending = start(&harness, &ann, &connect).await.unwrap();

    let with_proof = |proof: &[u8]| pb::Connect {
        caller_proof: Bytes::copy_from_slice(proof),
        ..connect.clone()
    };
    let mut altered = connect.caller_proof.to_vec();
    altered[20] ^= 1;
    let elsewhere = pb::Connect {
        source: "notes".to_owned(),
        ..connect.clone()
    };
    for (what, person, connect) in [
        ("no proof", &invented, &with_proof(b"")),
        ("no proof of a real person", &ann, &with_proof(b"")),
        ("an invented proof", &invented, &with_proof(&[7; 36])),
        ("an altered proof", &ann, &with_proof(&altered)),
        ("a proof of another kind", &ann, &with_proof(&pending)),
        ("the proof of another person", &invented, &connect),
        ("the proof of another caller", &ben, &connect),
        ("the proof of a caller for another", &ann, &of_ben),
        ("the proof of another source", &ann, &elsewhere),
    ] {
        check_refused(&harness, person, connect, &pending, what).await;
    }
    let actions = harness.audit.actions();
    assert!(
        actions.is_empty(),
        "no person is on record who proved nothing"
    );

    // With the proof, the code is sent to the authorization server, which is not available.
    let failed = finish(&harness, &ann, &connect, &pending).await;
    let reason = wardgate_rpc::reason_of(&failed.unwrap_err());
    assert_ne!(reason, ErrorReason::PermitRefused);
    let attempt = |failed| ("connection.make".to_owned(), failed);
    assert_eq!(harness.audit.actions(), [attempt(false), attempt(true)]);

    harness.advance(Duration::from_hours(1));
    check_refused(&harness, &ann, &connect, &pending, "an expired proof").await;
}
