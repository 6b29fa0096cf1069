//! Runs of a source that fails after some rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use futures::stream;
use serde_json::{Value, json};
use tonic::Status;
use wardgate_grpc_json::testing::{TestServer, files, methods, parcel, pool, reflection_v1};

use super::{VisibleAnswer, call};
use crate::Config;
use crate::tests::database;
use crate::tests::harness::{DOCTOR_ONE, Harness};

/// A tool whose rows a gRPC server sends one by one, and a tool for its stored results.
const PARCELS: &str = r#"
sources:
  depot: { type: grpc, url: "${DEPOT}", private: true }
tools:
  - name: list
    description: The parcels.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { count: { type: integer } } }
    execute: { type: grpc, source: depot, method: parcels.v1.Parcels/List }
    result:
      entity: Record
      key: id
      columns: { id: /parcelId, doctor: /remark }
      classes: { id: parcel, doctor: plain }
  - name: read_more
    description: More of a large result.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { handle: { type: string } }, required: [handle] }
    execute: { type: query, interface: results, query_type: read }
    result: { shape: rows }
"#;

/// The answer of the gRPC server to one call.
struct ScriptedAnswer {
    parcels: Vec<Value>,
    /// Whether the server fails after these parcels.
    fails: bool,
}

/// A gRPC server that answers the calls in the order of a script.
struct ScriptedDepot {
    server: TestServer,
    /// The number of calls that the server received.
    calls: Arc<AtomicUsize>,
}

impl ScriptedDepot {
    async fn start(script: Vec<ScriptedAnswer>) -> Self {
        let calls = Arc::new(AtomicUsize::new(0));
        let (counter, script) = (Arc::clone(&calls), Arc::new(script));
        let routes = methods(pool(), move |_, _| {
            let answer = &script[counter.fetch_add(1, Ordering::Relaxed)];
            let mut messages: Vec<_> = answer.parcels.iter().map(|it| Ok(parcel(it))).collect();
            if answer.fails {
                messages.push(Err(Status::unavailable("the depot closes")));
            }
            Ok(stream::iter(messages).boxed())
        });
        Self {
            server: TestServer::start(routes.merge(reflection_v1(&files()))).await,
            calls,
        }
    }

    async fn harness(&self, configure: impl FnOnce(&mut Config)) -> Harness {
        Harness::with(&database::sqlite().await, PARCELS, |config| {
            let url = self.server.url.to_string();
            config.variables.insert("DEPOT".to_owned(), url);
            configure(config);
        })
        .await
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

/// Tests that a failed run is repeated as if it had read no row if it read only withheld rows, and that each of these rows
/// is counted once.
#[tokio::test]
async fn p3_withheld_rows_do_not_keep_a_failed_run_from_being_repeated() {
    let released = json!({ "parcelId": "a", "remark": "d1" });
    let withheld = json!({ "parcelId": "b", "remark": "d2" });
    let script = [
        (vec![released.clone()], false),
        (vec![withheld.clone()], true),
        (vec![withheld, released.clone()], false),
        (vec![released], true),
    ];
    let script = script.map(|(parcels, fails)| ScriptedAnswer { parcels, fails });
    let depot = ScriptedDepot::start(Vec::from(script)).await;
    let harness = depot.harness(|_| ()).await;
    let ask = async || call(&harness, "list", "{}", DOCTOR_ONE).await;
    let undisturbed = ask().await;
    assert_eq!(undisturbed.facts().rows_withheld, 0);
    let expected = VisibleAnswer::new(String::new(), undisturbed);
    assert_eq!((expected.rows, depot.calls()), (1, 1));

    let repeated = ask().await;
    assert_eq!(depot.calls(), 3, "the failed run was repeated once");
    assert_eq!(repeated.facts().rows_withheld, 1);
    assert_eq!(VisibleAnswer::new(String::new(), repeated), expected);

    let failed = ask().await;
    assert_eq!(failed.facts().error_kind, "source_unavailable");
    assert_eq!(
        depot.calls(),
        4,
        "a run with a row to release is not repeated"
    );
}

/// Tests a row that is larger than an answer may be, but small enough for a stored result. If the run were repeated, the
/// row would be stored twice.
#[tokio::test]
async fn a_run_whose_only_row_fits_a_stored_result_is_not_repeated() {
    let large = json!({ "parcelId": "x".repeat(1_000), "remark": "d1" });
    let script = [(vec![large.clone()], true), (vec![large], false)];
    let script = script.map(|(parcels, fails)| ScriptedAnswer { parcels, fails });
    let depot = ScriptedDepot::start(Vec::from(script)).await;
    let harness = depot.harness(|config| config.max_result_bytes = 100).await;
    let answer = call(&harness, "list", "{}", DOCTOR_ONE).await;
    assert_eq!(answer.facts().error_kind, "source_unavailable");
    assert_eq!(depot.calls(), 1);
}
