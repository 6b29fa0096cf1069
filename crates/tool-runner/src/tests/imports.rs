//! Tests that imported tools run, without being configured by hand.

use std::collections::BTreeSet;

use axum::Router;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use serde_json::json;

use super::harness::Harness;
use crate::tests::database;
use wardgate_catalogue_import::{OpenapiOptions, PostgresOptions, openapi, postgres, toolbox};
use wardgate_testkit::{TestDatabase, serve};

/// Returns the kind and the fields of the source, as a Toolbox file names them.
fn toolbox_source(database: &TestDatabase) -> String {
    let url = database.url();
    if let Some(path) = url.strip_prefix("sqlite:") {
        return format!("{{ kind: sqlite, database: {path:?} }}");
    }
    let url = url::Url::parse(&url).unwrap();
    let password = url.password().unwrap_or_default();
    format!(
        "{{ kind: {}, host: {:?}, port: {:?}, database: {:?}, user: {:?}, password: {password:?} }}",
        database.kind(),
        url.host_str().unwrap(),
        url.port().map(|port| port.to_string()).unwrap_or_default(),
        url.path().trim_start_matches('/'),
        url.username(),
    )
}

#[tokio::test]
async fn tools_of_a_toolbox_file_answer_as_they_did() {
    for database in database::each().await {
        let kind = database.kind();
        let (first, second) = if kind == "postgres" {
            ("$1", "$2")
        } else {
            ("?", "?")
        };
        let file = format!(
            "sources:
  db: {}
tools:
  by-patient:
    kind: {kind}-sql
    source: db
    description: Rows of a patient above a level.
    parameters:
      - {{ name: patient, type: string, description: Code, allowedValues: [NUGWI, ABCDE] }}
      - {{ name: from-level, type: integer, description: Above, default: 1, minValue: 0 }}
    templateParameters:
      - {{ name: column, type: string, description: Order, allowedValues: [note, id], default: id }}
    statement: SELECT id, '$1 ?' AS mark FROM records WHERE patient = {first} AND level > {second} ORDER BY {{{{.column}}}};
",
            toolbox_source(&database)
        );
        let imported = toolbox(&file).unwrap();
        let password = ("DB_PASSWORD".to_owned(), String::new());
        let harness = Harness::with(&database, &imported.yaml, |config| {
            let url = url::Url::parse(&database.url()).unwrap();
            let value = url.password().unwrap_or("none").to_owned();
            config.variables.insert(password.0, value);
        })
        .await;
        let facts = harness.facts("by-patient").await;
        assert!(facts.read_only);
        let answer = harness
            .call("by-patient", r#"{"patient": "NUGWI", "column": "note"}"#)
            .await;
        assert_eq!(answer.column("id"), [2, 3], "{kind}");
        assert_eq!(answer.rows()[0]["mark"], "$1 ?");
        let answer = harness
            .call("by-patient", r#"{"patient": "NUGWI", "from_level": 2}"#)
            .await;
        assert_eq!(answer.column("id"), [3]);
        let answer = harness
            .call("by-patient", r#"{"patient": "x' OR 1=1"}"#)
            .await;
        assert!(answer.0.is_error);
    }
}

#[tokio::test]
async fn the_tables_of_postgres_are_listed_by_their_keys() {
    let Some(database) = database::postgres().await else {
        return;
    };
    database
        .execute(
            "CREATE TYPE mood AS ENUM ('glad', 'so so');
             CREATE DOMAIN code AS varchar(8);
             CREATE SCHEMA other;
             CREATE TABLE owners (id uuid PRIMARY KEY, name text, password text);
             CREATE TABLE pets (
                owner uuid REFERENCES owners, number int, name code, mood mood, weight numeric(9,2), born date,
                seen_at timestamptz, address inet, sizes int[], key bytea, short char(4), PRIMARY KEY (owner, number));
             CREATE INDEX ON pets (name); CREATE INDEX ON pets (mood); CREATE INDEX ON pets (weight);
             CREATE INDEX ON pets (born); CREATE INDEX ON pets (seen_at); CREATE INDEX ON pets (short);
             CREATE INDEX ON pets (lower(name));
             COMMENT ON TABLE pets IS 'All pets.';
             COMMENT ON COLUMN pets.born IS 'Day of birth.';
             CREATE VIEW heavy AS SELECT number, weight FROM pets WHERE weight > 10;
             CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
             CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (9);
             CREATE TABLE other.hidden (id int);
             INSERT INTO owners VALUES ('11111111-1111-1111-1111-111111111111', 'Ann', 'canary');
             INSERT INTO pets VALUES
               ('11111111-1111-1111-1111-111111111111', 2, 'Rex', 'glad', 12.50, '2020-02-29', '2024-01-01T10:00Z', '10.0.0.1', '{1,2}', 'x', 'ab'),
               ('11111111-1111-1111-1111-111111111111', 1, 'Tom', 'so so', 4, '2021-01-01', '2025-01-01T10:00Z', NULL, NULL, NULL, 'cd')",
        )
        .await;
    let options = PostgresOptions {
        variable: "URL".to_owned(),
        schemas: vec!["public".to_owned()],
        tables: Vec::new(),
    };
    let imported = postgres(&database.url(), &options).await.unwrap();
    let harness = Harness::with(&database, &imported.yaml, |_| ()).await;
    let names: BTreeSet<_> = harness
        .tools()
        .await
        .tools
        .into_iter()
        .filter_map(|tool| Some(tool.facts?.name))
        .collect();
    let wanted = [
        "list_heavy",
        "list_owners",
        "list_parted",
        "list_pets",
        "list_records",
        "list_written",
    ];
    assert_eq!(names, BTreeSet::from(wanted.map(str::to_owned)));

    let all = harness.call("list_pets", "{}").await;
    assert_eq!(all.column("number"), [1, 2], "in the order of the key");
    assert_eq!(all.rows()[1]["address"], "10.0.0.1/32");
    assert_eq!(all.rows()[1]["sizes"], json!([1, 2]));
    for (arguments, numbers) in [
        (r#"{"limit": 1}"#, &[1][..]),
        (
            r#"{"owner": "11111111-1111-1111-1111-111111111111", "number": 2}"#,
            &[2],
        ),
        (r#"{"owner": "21111111-1111-1111-1111-111111111111"}"#, &[]),
        (
            r#"{"name": "Rex", "mood": "glad", "weight": "12.5", "born": "2020-02-29", "short": "ab"}"#,
            &[2],
        ),
        (r#"{"seen_at_from": "2024-06-01T00:00:00Z"}"#, &[1]),
        (r#"{"seen_at_before": "2024-06-01T00:00:00Z"}"#, &[2]),
    ] {
        let answer = harness.call("list_pets", arguments).await;
        assert_eq!(answer.column("number"), numbers, "{arguments}");
    }
    let refused = harness.call("list_pets", r#"{"mood": "sad"}"#).await;
    assert!(refused.0.is_error);
    let owners = harness.call("list_owners", "{}").await;
    assert!(
        !owners.text().contains("canary"),
        "credentials are not selected"
    );

    let options = PostgresOptions {
        schemas: vec!["other".to_owned(), "public".to_owned()],
        tables: vec!["hidden".to_owned(), "heavy".to_owned()],
        ..options
    };
    let imported = postgres(&database.url(), &options).await.unwrap();
    assert!(
        imported.yaml.contains("- name: list_hidden\n"),
        "{}",
        imported.yaml
    );
    assert!(
        imported.yaml.contains("- name: list_public_heavy\n"),
        "{}",
        imported.yaml
    );
    assert_eq!(imported.yaml.matches("- name:").count(), 2);
}

/// Starts a service that answers with the request that it received.
async fn service() -> String {
    let answer = async |request: Request| {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 10_000).await.unwrap_or_default();
        let header = parts
            .headers
            .get("x-trace")
            .and_then(|value| value.to_str().ok());
        let answer = json!({ "asked": [{
            "method": parts.method.as_str(),
            "uri": parts.uri.to_string(),
            "trace": header,
            "body": String::from_utf8_lossy(&body),
        }] });
        ([(CONTENT_TYPE, "application/json")], answer.to_string())
    };
    let router = Router::new().fallback(answer);
    let address = serve(router).await;
    format!("http://{address}/base/")
}

const API: &str = "
openapi: 3.0.3
info: { title: Asked }
paths:
  /things/{thing-id}/part:
    parameters:
      - { name: thing-id, in: path, required: true, schema: { type: string } }
      - { name: X-Trace, in: header, schema: { type: string } }
    put:
      operationId: put.part
      parameters: [{ name: 'filter[kind]', in: query, schema: { type: array, items: { type: string } } }]
      requestBody:
        required: true
        content:
          application/json:
            schema: { type: object, properties: { size: { type: integer }, note: { type: string, nullable: true } } }
      responses:
        '200':
          content: { application/json: { schema: { type: object, properties: { asked: { type: array, items: { type: object } } } } } }
";

#[tokio::test]
async fn a_tool_of_an_openapi_document_sends_what_the_document_describes() {
    let options = OpenapiOptions {
        base_url: Some(service().await),
        ..OpenapiOptions::default()
    };
    let imported = openapi(API, &options).unwrap();
    let database = database::sqlite().await;
    let harness = Harness::with(&database, &imported.yaml, |_| ()).await;
    let arguments = r#"{"thing-id": "a/b?", "X-Trace": "t1", "filter_kind": ["x y", "z&"], "size": 3, "note": "{size}"}"#;
    let answer = harness.call("put_part", arguments).await;
    assert_eq!(
        answer.rows(),
        [json!({
            "method": "PUT",
            "uri": "/base/things/a%2Fb%3F/part?filter%5Bkind%5D=x+y&filter%5Bkind%5D=z%26",
            "trace": "t1",
            "body": r#"{"size":3,"note":"{size}"}"#,
        })]
    );
    let answer = harness.call("put_part", r#"{"thing-id": "7"}"#).await;
    assert_eq!(answer.rows()[0]["uri"], "/base/things/7/part");
    assert_eq!(answer.rows()[0]["body"], "{}");
}
