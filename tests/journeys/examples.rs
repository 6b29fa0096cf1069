//! Tests of every example directory, which follow its README.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use wardgate_testkit::{PythonServer, System, TestApp, run};

use crate::{REPOSITORY, WARDGATE};

fn example(name: &str) -> PathBuf {
    Path::new(REPOSITORY).join("deploy/examples").join(name)
}

/// Returns the text of a call's result.
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

/// Starts the bank example with data in its database.
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

/// Returns the rows of a call's result.
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
    let transfer = |amount: u32| json!({ "branch": "B1", "from_account": "DE40000", "to_account": "FR76003", "amount": amount });
    let alone = rows(&app, &teller, "make_transfer", transfer(1_000)).await;
    assert_eq!(alone[0]["amount"], 1_000);
    let mut named = transfer(1_000);
    named["requested_by"] = json!("teller.bo");
    let set = app.client().call(&teller, "make_transfer", named).await;
    let set = set.tool_error();
    assert!(set.contains("`requested_by`"), "{set}");
    let refused = app
        .client()
        .call(&teller, "make_transfer", transfer(10_001))
        .await
        .tool_error();
    assert!(refused.contains("Not permitted"), "{refused}");

    // A manager approves the call of a teller with a command.
    let waits = async |token: &str, amount: u32| {
        let answer = app
            .client()
            .call(token, "make_transfer", transfer(amount))
            .await;
        let answer = answer.json();
        let data = &answer["error"]["data"];
        assert_eq!(data["reason"], "approval_required", "{answer}");
        data["approval"]["id"].as_str().unwrap().to_owned()
    };
    let approvals = |token: &str, words: &[&str]| {
        let url = app.client().base();
        let command = [&["approvals"], words, &["--url", url]].concat();
        run(app.binary(), &command, &[("WARDGATE_TOKEN", token)])
    };
    let id = waits(&teller, 5_000).await;
    let listed = approvals(&manager, &["list"]).success();
    assert!(
        listed.contains(&id) && listed.contains("teller.ina"),
        "{listed}"
    );
    let shown = approvals(&manager, &["show", &id]).success();
    assert!(shown.contains(r#""amount": 5000"#), "{shown}");
    assert!(shown.contains("role Manager"), "{shown}");
    let own = approvals(&teller, &["approve", &id]);
    assert!(
        own.stderr.contains("another user must approve") || own.stderr.contains("not an approver"),
        "{}",
        own.stderr
    );
    approvals(&manager, &["approve", &id]).success();
    let made = rows(&app, &teller, "make_transfer", transfer(5_000)).await;
    assert_eq!(made[0]["amount"], 5_000);
    let again = waits(&teller, 5_000).await;
    assert_ne!(again, id, "an approval is used once");
    approvals(&manager, &["refuse", &again]).success();
    let refused = app
        .client()
        .call(&teller, "make_transfer", transfer(5_000))
        .await;
    assert_eq!(
        refused.json()["error"]["data"]["reason"],
        "approval_refused"
    );

    // A manager cannot approve their own call, and an approval does not permit access to another branch.
    let own = waits(&manager, 40_000).await;
    let alone = approvals(&manager, &["approve", &own]);
    assert!(
        alone.stderr.contains("another user must approve"),
        "{}",
        alone.stderr
    );
    approvals(&person("manager.bea", "Manager"), &["approve", &own]).success();
    rows(&app, &manager, "make_transfer", transfer(40_000)).await;
    let mut elsewhere = transfer(5_000);
    elsewhere["branch"] = json!("B2");
    let forbidden = app.client().call(&teller, "make_transfer", elsewhere).await;
    assert!(forbidden.tool_error().contains("forbidden"));

    // Both the call and the approval are on record.
    let records = app.records();
    let of_first: Vec<_> = records
        .iter()
        .filter(|record| record["approval_id"] == *id)
        .collect();
    let of = |method: &str, status: &str| {
        let found = of_first.iter().filter(|record| {
            record["event"] == "outcome"
                && record["method"].as_str().unwrap_or_default() == method
                && record["status"] == status
        });
        found
            .map(|record| record["caller"]["subject"].as_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("", "denied"), ["teller.ina"]);
    assert_eq!(of("approvals/approve", "ok"), ["manager.ada"]);
    assert_eq!(of("", "ok"), ["teller.ina"]);
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
