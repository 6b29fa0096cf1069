//! Every example directory, as its README says.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wardgate_testkit::{PythonServer, System, TestApp};

use crate::{REPOSITORY, WARDGATE};

fn example(name: &str) -> PathBuf {
    Path::new(REPOSITORY).join("deploy/examples").join(name)
}

/// The text of a call's result.
async fn text(app: &TestApp, token: &str, tool: &str, arguments: Value) -> String {
    let result = app.client().call(token, tool, arguments).await.result();
    assert_eq!(result["isError"], false, "{result}");
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn dental_searches_with_two_engines_and_answers_in_text() {
    let search = PythonServer::start(&example("dental").join("search.py"));
    let environment = [("DENTAL_SEARCH_URL", search.url.as_str())];
    let app = TestApp::start_example(WARDGATE, &example("dental"), "dental", &environment);
    let dentist = app.token("d.lopez", "Dentist", &[]);
    for tool in ["google_search", "duckduckgo_search"] {
        let found = text(&app, &dentist, tool, json!({"query": "a tooth"})).await;
        let pages: Vec<_> = found.split("\n---\n").collect();
        assert!((2..=5).contains(&pages.len()), "{found}");
        for page in pages {
            let lines: Vec<_> = page
                .lines()
                .map(|line| line.split_once(": ").unwrap().0)
                .collect();
            assert_eq!(lines, ["Title", "Content", "Link"], "{page}");
        }
    }
    let hostile = json!({"query": "tooth&engine=google#?q=x\r\nX: y"});
    assert!(
        text(&app, &dentist, "duckduckgo_search", hostile)
            .await
            .contains("Title: ")
    );
    drop(search);
    let away = app
        .client()
        .call(&dentist, "google_search", json!({"query": "crown"}))
        .await;
    assert_eq!(
        away.tool_error(),
        "Tool execution failed: the data source cannot be reached"
    );
}

#[tokio::test]
async fn catalogue_finds_records_by_words_tags_and_uuid() {
    let records = PythonServer::start(&example("catalogue").join("catalogue.py"));
    let environment = [("CATALOGUE_URL", records.url.as_str())];
    let app = TestApp::start_example(WARDGATE, &example("catalogue"), "catalogue", &environment);
    let reader = app.token("r.silva", "Reader", &[]);
    let search = async |arguments| {
        app.client()
            .call(&reader, "search_catalogue", arguments)
            .await
    };
    let found = search(json!({"query": "water quality"})).await.rows();
    assert_eq!(found.len(), 5, "five unless asked otherwise");
    assert_eq!(found[0]["title"], "Water quality of bathing sites");
    let tagged = search(json!({"query": "water", "tags": ["water", "climate"], "size": 2}))
        .await
        .rows();
    assert_eq!(tagged.len(), 1, "{tagged:?}");
    let record = json!({"uuid": found[0]["uuid"]});
    let record = app
        .client()
        .call(&reader, "get_record", record)
        .await
        .result();
    assert_eq!(record["structuredContent"]["title"], found[0]["title"]);
    let unknown = json!({"uuid": "00000000-0000-0000-0000-000000000000"});
    let unknown = app.client().call(&reader, "get_record", unknown).await;
    assert_eq!(unknown.tool_error(), "no record has this uuid");
    let outside = json!({"uuid": "../health"});
    let outside = app.client().call(&reader, "get_record", outside).await;
    assert!(
        outside
            .tool_error()
            .starts_with("Invalid arguments: `uuid`")
    );
}

#[tokio::test]
async fn edgelake_asks_the_platform_the_node_and_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("new_company.sqlite");
    let made = std::process::Command::new("python3")
        .arg(example("edgelake").join("node.py"))
        .arg("create")
        .arg(&database)
        .status();
    assert!(made.unwrap().success());
    let url = format!("sqlite:{}", database.display());
    let environment = [("EDGELAKE_DB_URL", url.as_str())];
    let app = TestApp::start_example(WARDGATE, &example("edgelake"), "edgelake", &environment);
    let operator = app.token("o.berg", "Operator", &[]);
    let databases = text(&app, &operator, "list_databases", json!({})).await;
    assert_eq!(databases, "[\n  \"new_company\"\n]");
    let status = app.client().call(&operator, "node_status", json!({})).await;
    let status = &status.result()["structuredContent"]["data"];
    assert_eq!(status["status"], "running");
    let query = json!({"database": "new_company", "table": "rand_data", "limit": 10});
    let rows = app.client().call(&operator, "query", query).await.rows();
    assert_eq!(rows.len(), 10);
    assert_eq!(rows[0]["row_id"], 1);
    let all = json!({"database": "new_company", "table": "rand_data"});
    let all = app.client().call(&operator, "query", all).await.rows();
    assert_eq!(all.len(), 100, "the default limit");
    for table in [
        "rand_data; DROP TABLE rand_data",
        "rand_data\"",
        "-rf",
        "a b",
        "../x",
    ] {
        let hostile = json!({"database": "new_company", "table": table});
        let refused = app.client().call(&operator, "query", hostile).await;
        assert!(
            refused
                .tool_error()
                .starts_with("Invalid arguments: `table`"),
            "{table:?}"
        );
    }
    let columns = json!({"database": "new_company", "table": "ping_sensor"});
    let columns = app
        .client()
        .call(&operator, "get_schema", columns)
        .await
        .rows();
    assert_eq!(
        columns[0],
        json!({"column_name": "row_id", "data_type": "integer"})
    );
    let metrics = app
        .client()
        .call(&operator, "get_metrics", json!({}))
        .await
        .result();
    assert!(
        metrics["structuredContent"]["resident_bytes"]
            .as_u64()
            .unwrap()
            > 0
    );
    let latest = json!({"table": "ping_sensor", "limit": 3});
    let latest = app
        .client()
        .call(&operator, "latest_readings", latest)
        .await
        .rows();
    assert_eq!(
        latest
            .iter()
            .map(|row| row["row_id"].as_i64().unwrap())
            .collect::<Vec<_>>(),
        [20, 19, 18]
    );
    let all = json!({"table": "rand_data"});
    let all = app.client().call(&operator, "all_readings", all).await;
    let all = all.result()["structuredContent"].clone();
    assert_eq!(all["kept"]["rows"], 250);
    let over = json!({
        "handle": all["kept"]["handle"], "filter": [{"column": "row_id", "op": "gt", "value": 240}],
        "aggregate": "count",
    });
    let over = app
        .client()
        .call(&operator, "query_result", over)
        .await
        .rows();
    assert_eq!(over, [json!({"count": 10})]);
}
