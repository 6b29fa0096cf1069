//! Tests of the records of some calls in the hospital, and of queries for them.

use serde_json::Value;
use sqlx::{Connection, Row, SqliteConnection};
use wardgate_domain::Digest;
use wardgate_testkit::{Reply, System, TestApp, corrupt_sqlite_pages};

use super::people::{billing, column, doctor, nurse, of_patient, patient};
use crate::WARDGATE;

/// Makes eight calls: of a doctor, a nurse, billing twice and a patient, and three that fail.
async fn a_busy_morning(app: &TestApp) -> Vec<Reply> {
    let client = app.client();
    let [doctor, nurse, billing, patient] = [doctor(app), nurse(app), billing(app), patient(app)];
    let mut replies = Vec::new();
    for (token, tool, code) in [
        (&doctor, "get_patient_records", "NUGWI"),
        (&nurse, "get_medical_records", "NUGWI"),
        (&billing, "get_patient_overview", "NUGWI"),
        (&billing, "get_medical_records", "NUGWI"),
        (&patient, "get_medical_records", "DOSRO"),
        (&doctor, "get_medical_records", "NOGWI"),
        (&doctor, "drop_all_tables", "NUGWI"),
        (&doctor, "get_medical_records", "nugwi"),
    ] {
        replies.push(client.call(token, tool, of_patient(code)).await);
    }
    replies
}

#[tokio::test]
async fn every_call_is_on_record_in_a_dense_sequence_with_its_receipt() {
    let app = TestApp::start(WARDGATE);
    let replies = a_busy_morning(&app).await;
    let records = app.records();
    assert_eq!(records.len(), replies.len());
    for (position, (record, reply)) in records.iter().zip(&replies).enumerate() {
        let call = reply.call();
        assert_eq!(record["sequence"], position);
        assert_eq!(record["call_id"], call["dev.wardgate/callId"]);
        assert!(call["dev.wardgate/receipt"]["sequence"].is_null());
        assert_eq!(
            record["leaf_hash"],
            call["dev.wardgate/receipt"]["leafHash"]
        );
    }
    let statuses = [
        "ok",
        "ok",
        "ok",
        "denied",
        "denied",
        "error",
        "unknown_tool",
        "invalid_arguments",
    ];
    assert_eq!(column(&records, "status"), statuses);
    let users = [
        "dr.yenji",
        "nurse.joy",
        "billing.ruiz",
        "billing.ruiz",
        "patient.nugwi",
    ];
    assert_eq!(column(&records[..5], "user"), users);
}

#[tokio::test]
async fn the_leaf_hash_is_that_of_the_stored_bytes() {
    let app = TestApp::start(WARDGATE);
    a_busy_morning(&app).await;
    let store = format!(
        "sqlite:{}?mode=ro",
        app.data_dir().join("audit.sqlite").display()
    );
    let mut store = SqliteConnection::connect(&store).await.unwrap();
    let rows = sqlx::query("SELECT leaf_hash, canonical FROM record ORDER BY sequence")
        .fetch_all(&mut store)
        .await
        .unwrap();
    let records = app.records();
    assert_eq!(rows.len(), records.len());
    for (row, record) in rows.iter().zip(&records) {
        let (stored, canonical): (Vec<u8>, Vec<u8>) = (row.get(0), row.get(1));
        // RFC 6962, section 2.1.
        let computed = Digest::compute(&[&[0], canonical.as_slice()].concat());
        assert_eq!(stored, computed.as_bytes());
        assert_eq!(record["leaf_hash"], computed.to_string());
        let canonical: Value = serde_json::from_slice(&canonical).unwrap();
        for (name, value) in canonical.as_object().unwrap() {
            assert_eq!(&record[name], value, "{name}");
        }
    }
}

#[tokio::test]
async fn the_access_view_has_exactly_its_seven_fields() {
    let app = TestApp::start(WARDGATE);
    a_busy_morning(&app).await;
    let view = app.records_with(&["--view", "access"]);
    let fields = [
        "user",
        "action",
        "table_name",
        "record_id",
        "timestamp",
        "is_phi_access",
        "ip_address",
    ];
    for line in &view {
        let names: Vec<&String> = line.as_object().unwrap().keys().collect();
        assert_eq!(names, fields);
        assert_eq!(line["action"], "LLM_TOOL_CALL");
        assert_eq!(line["table_name"], "LLM");
        assert_eq!(line["ip_address"], "127.0.0.1");
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
    }
    let phi = [true, true, true, false, false, false, false, false];
    assert_eq!(column(&view, "is_phi_access"), phi);
    assert_eq!(column(&view[..2], "record_id"), ["get_medical_records"; 2]);
}

#[tokio::test]
async fn the_record_is_queried_by_every_filter() {
    let app = TestApp::start(WARDGATE);
    let replies = a_busy_morning(&app).await;
    let all = app.records();
    let positions = |options: &[&str]| -> Vec<u64> {
        let records = app.records_with(options);
        records
            .iter()
            .map(|record| record["sequence"].as_u64().unwrap())
            .collect()
    };
    let call = replies[4].call()["dev.wardgate/callId"]
        .as_str()
        .unwrap()
        .to_owned();
    let time = |position: usize| all[position]["timestamp"].as_str().unwrap();
    assert_eq!(positions(&["--user", "billing.ruiz"]), [2, 3]);
    assert_eq!(positions(&["--tool", "get_patient_overview"]), [2]);
    assert_eq!(positions(&["--tool", "(unknown name)"]), [6]);
    assert_eq!(positions(&["--call-id", &call]), [4]);
    assert_eq!(positions(&["--status", "denied"]), [3, 4]);
    assert_eq!(positions(&["--status", "invalid_arguments"]), [7]);
    assert_eq!(positions(&["--since", time(6)]), [6, 7]);
    assert_eq!(positions(&["--until", time(2)]), [0, 1]);
    assert_eq!(positions(&["--limit", "3"]), [0, 1, 2]);
    assert_eq!(positions(&["--newest-first", "--limit", "2"]), [7, 6]);
    assert_eq!(
        positions(&[
            "--user",
            "dr.yenji",
            "--status",
            "ok",
            "--tool",
            "get_medical_records"
        ]),
        [0]
    );
    assert!(positions(&["--user", "nobody"]).is_empty());
    // These options select by values that are only in the record itself.
    assert_eq!(positions(&["--event", "outcome"]).len(), all.len());
    assert!(positions(&["--event", "intent"]).is_empty());
    assert_eq!(positions(&["--phi"]), [0, 1, 2]);
    let positions_of = |is: &dyn Fn(&Value) -> bool| -> Vec<u64> {
        let found = (0..).zip(&all).filter(|(_, record)| is(record));
        found.map(|(position, _)| position).collect()
    };
    let reason = all[3]["reason"].as_str().unwrap();
    let found = positions(&["--reason", reason]);
    assert_eq!(found, positions_of(&|record| record["reason"] == reason));
    assert!(found.contains(&3) && !found.contains(&0), "{found:?}");
    let decision = all[3]["decision"]["id"].as_str().unwrap();
    let found = positions(&["--decision", decision]);
    assert_eq!(
        found,
        positions_of(&|record| record["decision"]["id"] == decision)
    );
    assert!(found.contains(&3) && !found.contains(&0), "{found:?}");
}

#[tokio::test]
async fn calls_of_which_rows_were_withheld_are_found_by_that() {
    // Without pushdown the rows reach the tool-runner, which counts those that it withholds.
    let app = TestApp::start_with(WARDGATE, &[("WARDGATE_TOOL_RUNNER__PUSHDOWN", "false")]);
    let doctor = app.token("dr.okafor", "Doctor", &[]);
    let nurse = app.token("nurse.adeyemi", "Nurse", &[("ward", "W4")]);
    for token in [&doctor, &nurse] {
        let reply = app
            .client()
            .call(token, "get_medical_records", of_patient("DOSRO"));
        reply.await.rows();
    }
    let withheld = app.records_with(&["--withheld"]);
    assert_eq!(column(&withheld, "user"), ["nurse.adeyemi"]);
    let of_phi = app.records_with(&["--phi"]);
    assert_eq!(column(&of_phi, "user"), ["dr.okafor", "nurse.adeyemi"]);
}

#[tokio::test]
async fn a_query_of_a_corrupt_store_prints_what_can_be_read_and_fails() {
    let mut app = TestApp::start(WARDGATE);
    a_busy_morning(&app).await;
    let all = app.records();
    assert!(app.process.terminate().success(), "{}", app.process.log());
    let first = all[0]["call_id"].as_str().unwrap();
    let store = app.data_dir().join("audit.sqlite");
    corrupt_sqlite_pages(&store, &[format!(r#""call_id":"{first}""#)]).await;
    let query = app.query(&["-o", "jsonl"]);
    assert_eq!(query.code, Some(1), "{}", query.stderr);
    let newest: Value = serde_json::from_str(query.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(newest, all[7]);
    for message in [
        "record 0: ",
        "cannot be read: the database is corrupt",
        "preserve the store unchanged",
    ] {
        assert!(query.stderr.contains(message), "{}", query.stderr);
    }
}

#[tokio::test]
async fn the_record_reads_as_a_table_too() {
    let app = TestApp::start(WARDGATE);
    a_busy_morning(&app).await;
    let table = app.query(&[]).success();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 9, "{table}");
    for word in [
        "SEQUENCE", "TIME", "STATUS", "USER", "TOOL", "ROWS", "ADDRESS",
    ] {
        assert!(lines[0].contains(word), "{table}");
    }
    let words: Vec<&str> = lines[4].split_whitespace().collect();
    assert_eq!(
        [words[0], words[2], words[3], words[4]],
        ["3", "denied", "billing.ruiz", "get_medical_records"]
    );
}

#[tokio::test]
async fn who_was_shown_what_of_a_patient_is_one_command_and_stands_nowhere_in_clear() {
    let app = TestApp::start(WARDGATE);
    a_busy_morning(&app).await;
    let about = |patient: &str| app.records_with(&["--subject", patient, "--since", "2020-01-01"]);
    let seen = about("NUGWI");
    assert_eq!(
        column(&seen, "user"),
        ["dr.yenji", "nurse.joy", "billing.ruiz"],
        "those who were refused were shown nothing"
    );
    for nobody in ["DOSRO", "NUGW", "nugwi"] {
        assert!(about(nobody).is_empty(), "{nobody}");
    }
    for record in &seen {
        let (subjects, details) = (&record["data_subjects"], &record["details"]);
        assert_eq!(subjects[0]["rows"], record["rows"]);
        assert_eq!(details["data_subjects"][0]["key"], "NUGWI");
        assert_eq!(details["arguments"][0]["name"], "patient_id");
        assert_eq!(details["arguments"][0].get("value"), None);
        assert!(details["stages_us"].as_array().unwrap().len() > 3);
    }
    let tier = |record: &Value, name: &str| {
        let columns = record["details"]["columns"].as_array().unwrap().iter();
        let mut of_name = columns.filter(|column| column["name"] == name);
        of_name.next().map(|column| column["tier"].clone())
    };
    assert_eq!(tier(&seen[0], "patient_id"), Some("clear".into()));
    assert_ne!(tier(&seen[1], "patient_id"), Some("clear".into()));
    let table = app.query(&["--subject", "NUGWI"]).success();
    assert!(
        table.contains("RELEASED") && table.contains("patient_id ("),
        "{table}"
    );

    let store = std::fs::read_dir(app.data_dir()).unwrap();
    let store = store.map(|file| file.unwrap().path());
    let store = store.filter(|path| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("audit.")
    });
    let bytes: Vec<u8> = store
        .flat_map(|path| std::fs::read(path).unwrap())
        .collect();
    let holds = |text: &str| {
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    assert!(holds("dr.yenji"), "the search finds what is there");
    for canary in ["NUGWI", "DOSRO", "NOGWI"] {
        assert!(!holds(canary), "{canary}");
    }
}
