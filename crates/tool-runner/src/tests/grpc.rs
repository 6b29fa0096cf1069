//! Tests that rows of a gRPC server are governed like any other rows.

use serde_json::json;
use tonic::Status;
use wardgate_domain::ColumnTier;

use super::harness::{Harness, rule};
use crate::tests::database;
use wardgate_grpc_json::testing::{
    TestServer, answers, files, methods, parcel, pool, reflection_v1, refuses,
};

const TOOLS: &str = r#"
sources:
  depot: { type: grpc, url: "${DEPOT}", private: true }
tools:
  - name: list
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { count: { type: integer } } }
    execute: { type: grpc, source: depot, method: parcels.v1.Parcels/List }
    result:
      entity: Record
      key: id
      columns: { id: /parcelId, sealed: /fragile, weight: /grams }
      classes: { id: parcel, sealed: plain, weight: plain }
"#;

#[tokio::test]
async fn p3_the_rule_holds_for_the_rows_of_a_grpc_server() {
    let parcels = vec![
        parcel(&json!({"parcelId": "a", "fragile": true, "grams": 1})),
        parcel(&json!({"parcelId": "b", "fragile": false, "grams": 2})),
        parcel(&json!({"parcelId": "c"})),
    ];
    let routes = methods(pool(), answers(parcels)).merge(reflection_v1(&files()));
    let server = TestServer::start(routes).await;
    let harness = Harness::with(&database::sqlite().await, TOOLS, |config| {
        let url = server.url.to_string();
        config.variables.insert("DEPOT".to_owned(), url);
    })
    .await;
    let mut terms = harness.terms("list").await;
    let everything = harness.call_with(&terms, r#"{"count": 3}"#).await.unwrap();
    assert_eq!(everything.rows().len(), 3);

    // A field that the message omits is false in JSON, so the rule can decide on it.
    let open = "permit(principal, action, resource) when { resource.sealed == false };";
    terms.row_rule = Some(rule(&[open]));
    for (class, tier) in &mut terms.column_tiers {
        if class.as_str() == "parcel" {
            *tier = ColumnTier::Dropped;
        }
    }
    let governed = harness.call_with(&terms, "{}").await.unwrap();
    assert_eq!(
        governed.rows(),
        [
            json!({"sealed": false, "weight": "2"}),
            json!({"sealed": false, "weight": "0"}),
        ]
    );
    assert_eq!(governed.facts().rows_withheld, 1);
}

#[tokio::test]
async fn a_grpc_server_that_stops_at_its_own_time_limit_is_named_without_the_limit_of_the_call() {
    let status = Status::deadline_exceeded("SECRET");
    let routes = methods(pool(), refuses(status)).merge(reflection_v1(&files()));
    let server = TestServer::start(routes).await;
    let harness = Harness::with(&database::sqlite().await, TOOLS, |config| {
        let url = server.url.to_string();
        config.variables.insert("DEPOT".to_owned(), url);
    })
    .await;
    let answer = harness.call("list", "{}").await;
    assert_eq!(answer.facts().error_kind, "timeout");
    assert_eq!(
        answer.text(),
        "Timeout: the source `depot` stopped at its own time limit"
    );
}
