//! Every example directory, as its README says.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
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

/// The bank, with its database filled.
async fn bank(dir: &Path) -> TestApp {
    let file = dir.join("bank.sqlite");
    let options = SqliteConnectOptions::new()
        .filename(&file)
        .create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    let script = std::fs::read_to_string(example("bank").join("bank.sql")).unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(script))
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    let url = format!("sqlite:{}", file.display());
    TestApp::start_example(WARDGATE, &example("bank"), "bank", &[("BANK_DB_URL", &url)])
}

/// The rows of a call's result.
async fn rows(app: &TestApp, token: &str, tool: &str, arguments: Value) -> Vec<Value> {
    let result = app.client().call(token, tool, arguments).await.result();
    assert_eq!(result["isError"], false, "{result}");
    result["structuredContent"]["data"]
        .as_array()
        .unwrap()
        .clone()
}

#[tokio::test]
async fn the_bank_shows_each_role_its_part_of_the_same_accounts() {
    let dir = tempfile::tempdir().unwrap();
    let app = bank(dir.path()).await;
    let person = |subject, role| app.token(subject, role, &[("branch", "B1")]);
    let (teller, intern) = (
        person("teller.ina", "Teller"),
        person("intern.uwe", "Intern"),
    );
    let manager = person("manager.ada", "Manager");
    let all = json!({ "branch": "B1", "limit": 1000 });
    let of_manager = rows(&app, &manager, "list_accounts", all.clone()).await;
    let of_teller = rows(&app, &teller, "list_accounts", all.clone()).await;
    assert_eq!(of_manager.len(), 40);
    assert!(of_teller.len() < 40, "accounts of staff are for managers");
    assert!(
        of_manager[0].get("of_staff").is_none(),
        "a column for the policies alone"
    );
    assert_eq!(of_manager[0]["opened_on"].as_str().unwrap().len(), 10);
    assert_eq!(of_teller[0]["opened_on"].as_str().unwrap().len(), 4);

    let five = rows(&app, &intern, "list_accounts", json!({ "branch": "B1" })).await;
    assert_eq!(five.len(), 5);
    for row in &five {
        assert_eq!(row["balance"], "100000+", "{row}");
        assert!(row["account"].as_str().unwrap().starts_with("•••"), "{row}");
        assert!(row["holder"].as_str().unwrap().contains("•••"), "{row}");
        assert!(row.get("phone").is_none(), "{row}");
    }
    for (token, arguments) in [(&intern, all), (&teller, json!({ "branch": "B2" }))] {
        let refused = app
            .client()
            .call(token, "list_accounts", arguments)
            .await
            .tool_error();
        assert!(refused.contains("Not permitted"), "{refused}");
    }
}

#[tokio::test]
async fn a_transfer_of_the_bank_takes_two_people_whatever_a_model_says() {
    let dir = tempfile::tempdir().unwrap();
    let app = bank(dir.path()).await;
    let person = |subject, role| app.token(subject, role, &[("branch", "B1")]);
    let (teller, manager) = (
        person("teller.ina", "Teller"),
        person("manager.ada", "Manager"),
    );
    let request = |amount: u32| json!({ "branch": "B1", "from_account": "DE40000", "to_account": "FR76003", "amount": amount });
    let refused = async |token: &str, tool: &str, arguments: Value| {
        let refused = app.client().call(token, tool, arguments).await.tool_error();
        assert!(refused.contains("Not permitted"), "{refused}");
    };
    refused(&teller, "request_transfer", request(10_001)).await;
    let asked = rows(&app, &teller, "request_transfer", request(900)).await;
    let transfer = asked[0]["transfer"].clone();
    let waiting = rows(&app, &teller, "list_transfers", json!({ "branch": "B1" })).await;
    assert!(
        waiting.iter().any(|row| row["transfer"] == transfer),
        "{waiting:?}"
    );

    let approve = |transfer: &Value, amount: u32| json!({ "branch": "B1", "transfer": transfer, "amount": amount });
    let mut named = approve(&transfer, 900);
    named["approved_by"] = json!("manager.bea");
    let set = app.client().call(&manager, "approve_transfer", named).await;
    let set = set.tool_error();
    assert!(set.contains("`approved_by`"), "{set}");
    refused(&manager, "approve_transfer", approve(&transfer, 50_001)).await;
    let other_amount = approve(&transfer, 901);
    let nothing = app
        .client()
        .call(&manager, "approve_transfer", other_amount)
        .await;
    let nothing = nothing.tool_error();
    assert!(nothing.contains("No transfer"), "{nothing}");
    let approved = rows(&app, &manager, "approve_transfer", approve(&transfer, 900)).await;
    assert_eq!(approved[0]["approved_by"], "manager.ada");

    // A manager who asks does not approve.
    let own = rows(&app, &manager, "request_transfer", request(70)).await;
    let own = approve(&own[0]["transfer"], 70);
    let alone = app
        .client()
        .call(&manager, "approve_transfer", own)
        .await
        .tool_error();
    assert!(alone.contains("No transfer"), "{alone}");
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
