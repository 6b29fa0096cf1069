//! Tests of queries to the platform, and of the shapes of results.

use serde_json::json;

use super::harness::Harness;
use crate::tests::database;

const QUERIES: &str = r#"
types:
  data_query: { type: query, interface: catalog }
sources:
  rows: { type: "${TYPE}", url: "${URL}", max_connections: 4 }
toolsets:
  data: { description: What there is., tags: [data] }
tools:
  - name: databases
    tags: [data]
    data_command: { type: data_query, query_type: get_all_databases }
    annotations: { readOnlyHint: true }
    input_schema: { properties: {}, required: [] }
  - name: tables
    tags: [data]
    annotations: { readOnlyHint: true }
    execute: { type: data_query, query_type: get_tables }
    input_schema: { type: object, properties: { database: { type: string } }, required: [database] }
    result: { text: "{table_type} {table_name}", separator: " + " }
  - name: columns
    annotations: { readOnlyHint: true }
    execute: { type: data_query, query_type: get_columns }
    input_schema: { type: object, properties: { database: { type: string }, table: { type: string } }, required: [database, table] }
    result: { columns: { name: /column_name, nullable: /nullable }, shape: rows }
  - name: status
    annotations: { readOnlyHint: true }
    execute: { type: query, interface: node, query_type: get_status }
    input_schema: { type: object }
    result: { shape: object }
  - name: load
    annotations: { readOnlyHint: true }
    execute: { type: query, interface: node, query_type: get_load }
    input_schema: { type: object }
  - name: system
    annotations: { readOnlyHint: true }
    execute: { type: query, interface: metrics, query_type: get_system_metrics }
    input_schema: { type: object }
  - name: figures
    annotations: { readOnlyHint: true }
    execute: { type: query, interface: metrics, query_type: get_tool_metrics }
    input_schema: { type: object }
    result: { rows: "$[?@.calls > 0]", columns: { tool: /tool, calls: $.calls } }
  - name: inventory
    annotations: { readOnlyHint: true }
    execute: { type: query, interface: tools, query_type: list_toolsets }
    input_schema: { type: object }
"#;

async fn harness() -> Harness {
    Harness::with(&database::sqlite().await, QUERIES, |_| ()).await
}

#[tokio::test]
async fn the_catalog_tells_databases_tables_and_columns_of_every_kind_of_database() {
    for database in database::each().await {
        let harness = Harness::with(&database, QUERIES, |_| ()).await;
        let databases = harness.call("databases", "{}").await;
        assert_eq!(databases.text(), "[\n  \"rows\"\n]");
        assert_eq!(databases.structured_content(), json!({"data": ["rows"]}));
        let tables = harness.call("tables", r#"{"database": "rows"}"#).await;
        assert_eq!(tables.text(), "table records + table written");
        let columns = r#"{"database": "rows", "table": "written"}"#;
        let columns = harness.call("columns", columns).await;
        assert_eq!(columns.rows()[0]["name"], "line");
        let hostile = r#"{"database": "rows", "table": "records'); DROP TABLE records; --"}"#;
        let refused = harness.call("columns", hostile).await;
        assert_eq!(
            refused.text(),
            "Invalid arguments: `table` is not a table of this database"
        );
        let refused = harness.call("tables", r#"{"database": "postgres"}"#).await;
        assert_eq!(refused.facts().error_kind, "invalid_arguments");
    }
}

#[tokio::test]
async fn a_node_tells_how_it_is_and_what_it_ran() {
    let harness = harness().await;
    let status = harness.call("status", "{}").await.structured_content();
    assert_eq!(status["status"], "running");
    assert_eq!(
        status["sources"],
        json!([{"name": "rows", "state": "up", "since": null}])
    );
    assert_eq!(status["tools"], 8);
    let refused = harness.call("tables", r#"{"database": "none"}"#).await;
    assert!(refused.0.is_error);
    let load = harness.call("load", "{}").await.structured_content();
    assert_eq!(load["data"]["calls_in_flight"], 1, "itself");
    assert_eq!(load["data"]["calls_total"], 2);
    assert_eq!(load["data"]["calls_failed"], 1);
    let figures = harness.call("figures", "{}").await;
    assert_eq!(
        figures.structured_content()["data"],
        json!([
            {"tool": "load", "calls": 1},
            {"tool": "status", "calls": 1},
            {"tool": "tables", "calls": 1},
        ])
    );
    let system = harness.call("system", "{}").await.structured_content();
    assert!(system["data"]["resident_bytes"].as_u64().unwrap() > 1_000_000);
}

#[tokio::test]
async fn toolsets_hold_what_is_named_and_what_is_tagged() {
    let harness = harness().await;
    let inventory = harness.call("inventory", "{}").await.structured_content();
    assert_eq!(
        inventory["data"],
        json!([{"name": "data", "description": "What there is.", "tools": ["databases", "tables"]}])
    );
    let listed = harness.tools().await;
    assert_eq!(listed.toolsets[0].name, "data");
    let in_data = listed.tools.iter().filter(|tool| tool.toolsets == ["data"]);
    assert_eq!(in_data.count(), 2);
}
