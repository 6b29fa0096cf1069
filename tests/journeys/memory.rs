//! Tests of conversations, which survive a restart, belong to one caller, and show only what their reader may see at present.

use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection};
use wardgate_testkit::{ProcessExit, Reply, SeparateProcesses, System, TestApp, run, until};

use super::extra_tools;
use super::people::{doctor, nurse, record_manager};
use super::postgres::Database;
use crate::{REPOSITORY, WARDGATE};

const CHAT: &str = "chat_123456";
const SAID: &str = "Does NUGWI take Lisinopril?";
const ANSWERED: &str = "Yes, 10 mg daily.";

async fn send_request(system: &impl System, token: &str, method: &str, params: Value) -> Reply {
    system.client().modern(token, method, params).await
}

async fn create(system: &impl System, token: &str) {
    let params = json!({ "conversation_id": CHAT });
    let reply = send_request(system, token, "memory/get_or_create", params).await;
    assert_eq!(reply.result()["conversation_id"], CHAT);
}

async fn add(system: &impl System, token: &str, role: &str, content: &str) {
    let params = json!({ "conversation_id": CHAT, "role": role, "content": content });
    let reply = send_request(system, token, "memory/add_message", params).await;
    assert_eq!(reply.result()["status"], "success");
}

/// Returns the texts that a reader gets as context.
async fn context(system: &impl System, token: &str) -> Vec<String> {
    let messages = messages(system, token).await;
    let content = |message: &Value| message["content"].as_str().unwrap().to_owned();
    messages.iter().map(content).collect()
}

async fn messages(system: &impl System, token: &str) -> Vec<Value> {
    let params = json!({ "conversation_id": CHAT, "max_messages": 20 });
    let reply = send_request(system, token, "memory/get_context", params).await;
    reply.result()["messages"].as_array().unwrap().clone()
}

/// Reads a conversation as a resource.
async fn get_conversation(system: &impl System, token: &str, id: &str) -> Reply {
    let uri = json!({ "uri": format!("memory://conversation/{id}") });
    let client = system.client();
    client
        .legacy(token, "2025-11-25", "resources/read", uri)
        .await
}

/// Returns the parsed text of a resource.
fn read_export(reply: &Reply) -> Value {
    let result = reply.result();
    serde_json::from_str(result["contents"][0]["text"].as_str().unwrap()).unwrap()
}

/// Checks that messages are stored, that only their owner can read them, and that the record contains none of their text.
async fn remembers(system: &impl System) {
    let (doctor, nurse) = (doctor(system), nurse(system));
    create(system, &doctor).await;
    add(system, &doctor, "user", SAID).await;
    add(system, &doctor, "assistant", ANSWERED).await;
    assert_eq!(context(system, &doctor).await, [SAID, ANSWERED]);
    assert!(context(system, &nurse).await.is_empty());

    let params = json!({ "query": "lisinopril" });
    let found = send_request(system, &doctor, "memory/search", params.clone()).await;
    assert_eq!(found.result()["hits"][0]["message"]["content"], SAID);
    let found = send_request(system, &nurse, "memory/search", params).await;
    assert_eq!(found.result()["hits"], json!([]));

    let listed = send_request(system, &doctor, "resources/list", json!({})).await;
    let uri = format!("memory://conversation/{CHAT}");
    let resources = listed.result()["resources"].clone();
    let mut resources = resources.as_array().unwrap().iter();
    let resource = resources.find(|resource| resource["uri"] == uri).unwrap();
    assert_eq!(resource["name"], "Conversation chat_123");
    let export = read_export(&get_conversation(system, &doctor, CHAT).await);
    assert_eq!(export["messages"][1]["content"], ANSWERED);
    assert_eq!(
        get_conversation(system, &nurse, CHAT).await.error().0,
        -32002
    );

    let key = export["key"].as_str().unwrap();
    let records = system.records_with(&["--tool", key]);
    assert!(records.len() >= 5, "{records:?}");
    assert!(records.iter().all(|record| {
        record["table_name"] == "Memory"
            && record["record_id"] == key
            && record["user"] == "dr.yenji"
    }));
    let everything = format!("{:?}", system.records());
    for typed in [CHAT, SAID, ANSWERED, "isinopril"] {
        assert!(!everything.contains(typed), "{typed}");
    }
}

#[tokio::test]
async fn a_conversation_outlives_a_restart_and_a_kill() {
    let mut app = TestApp::start(WARDGATE);
    remembers(&app).await;
    assert!(app.process.terminate().success(), "{}", app.process.log());
    app.restart();
    let token = doctor(&app);
    assert_eq!(context(&app, &token).await, [SAID, ANSWERED]);
    add(&app, &token, "user", "And since when?").await;
    app.process.kill();
    app.restart();
    let token = doctor(&app);
    assert_eq!(
        context(&app, &token).await,
        [SAID, ANSWERED, "And since when?"]
    );
}

#[tokio::test]
async fn conversations_go_on_while_their_master_key_is_replaced() {
    let mut app = TestApp::start(WARDGATE);
    remembers(&app).await;
    assert!(app.process.terminate().success(), "{}", app.process.log());
    let keys = app.data_dir().join("keys");
    let former = keys.join("memory-former.key");
    std::fs::rename(keys.join("memory.key"), &former).unwrap();
    app.restart();
    let token = doctor(&app);
    assert_eq!(context(&app, &token).await, [SAID, ANSWERED]);

    let dir = app.data_dir().display().to_string();
    let rekey = || {
        let arguments = ["conversations", "rekey", "--data-dir", &dir];
        run(WARDGATE.as_ref(), &arguments, &[]).success()
    };
    let moved = rekey();
    assert!(
        moved.starts_with("moved to the current master key: 1 conversation"),
        "{moved}"
    );
    add(&app, &token, "user", "And since when?").await;
    let again = rekey();
    assert!(
        again.contains("under the current master key already"),
        "{again}"
    );

    assert!(app.process.terminate().success(), "{}", app.process.log());
    std::fs::remove_file(former).unwrap();
    app.restart();
    let token = doctor(&app);
    let said = [SAID, ANSWERED, "And since when?"];
    assert_eq!(context(&app, &token).await, said);
    let params = json!({ "query": "lisinopril" });
    let found = send_request(&app, &token, "memory/search", params).await;
    assert_eq!(found.result()["hits"][0]["message"]["content"], SAID);
}

#[tokio::test]
async fn the_move_to_another_master_key_fails_if_a_conversation_cannot_be_decrypted() {
    let mut app = TestApp::start(WARDGATE);
    remembers(&app).await;
    assert!(app.process.terminate().success(), "{}", app.process.log());
    let keys = app.data_dir().join("keys");
    std::fs::rename(keys.join("memory.key"), keys.join("memory-former.key")).unwrap();
    app.restart();
    assert!(app.process.terminate().success(), "{}", app.process.log());
    let store = format!("sqlite:{}", app.data_dir().join("memory.sqlite").display());
    let mut store = SqliteConnection::connect(&store).await.unwrap();
    sqlx::query("UPDATE conversation SET data_key = x'00'")
        .execute(&mut store)
        .await
        .unwrap();
    store.close().await.unwrap();

    let dir = app.data_dir().display().to_string();
    let arguments = ["conversations", "rekey", "--data-dir", &dir];
    for first_line in [
        "moved to the current master key: 0 conversations",
        "every other conversation is encrypted under the current master key already",
    ] {
        let moved = run(WARDGATE.as_ref(), &arguments, &[]);
        assert_eq!(moved.code, Some(1), "{moved:?}");
        assert!(moved.stdout.starts_with(first_line), "{moved:?}");
        for message in [
            "the current master key does not decrypt the conversation ",
            "not moved: 1 conversation, which cannot be decrypted with the current key",
        ] {
            assert!(moved.stderr.contains(message), "{moved:?}");
        }
    }
}

#[tokio::test]
async fn conversations_are_kept_by_a_process_of_their_own_over_mtls() {
    let mut system = SeparateProcesses::start(WARDGATE, REPOSITORY.as_ref()).await;
    remembers(&system).await;
    system.memory.kill();
    let token = doctor(&system);
    let params = json!({ "conversation_id": CHAT });
    let lost = send_request(&system, &token, "memory/get_context", params).await;
    assert_eq!(lost.error().0, -32603, "{}", lost.body);
    system.until_ready(true).await;
    system.restart("memory");
    let said = until("the memory is found again", async || {
        let params = json!({ "conversation_id": CHAT });
        let reply = send_request(&system, &token, "memory/get_context", params).await;
        let messages = reply.json()["result"]["messages"].clone();
        messages.is_array().then_some(messages)
    })
    .await;
    assert_eq!(said[0]["content"], SAID);

    let config = system.config().display().to_string();
    let list = ["list", "-o", "jsonl", "--config", &config];
    let listed = conversations(&list, &record_manager(&system)).success();
    let skeleton: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    assert_eq!(
        [&skeleton["user"], &skeleton["messages"]],
        [&json!("dr.yenji"), &json!(2)]
    );
}

#[tokio::test]
async fn conversations_are_kept_on_postgresql() {
    let Some(database) = Database::create().await else {
        return;
    };
    let store = ("WARDGATE_MEMORY__STORE", database.url.as_str());
    let mut app = TestApp::start_with(WARDGATE, &[store]);
    remembers(&app).await;
    assert!(!app.data_dir().join("memory.sqlite").exists());
    app.process.kill();
    app.restart();
    assert_eq!(context(&app, &doctor(&app)).await, [SAID, ANSWERED]);
    drop(app);
    database.remove().await;
}

/// Runs `wardgate conversations …` as the operator of `token`.
fn conversations(arguments: &[&str], token: &str) -> ProcessExit {
    run(
        WARDGATE.as_ref(),
        &[&["conversations"], arguments].concat(),
        &[("WARDGATE_TOKEN", token)],
    )
}

/// Replaces a policy file atomically.
fn write_policy(system: &impl System, name: &str, text: &str) {
    let file = system.example_dir().join("policies").join(name);
    let beside = file.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(&beside, &file).unwrap();
}

fn policy(system: &impl System, name: &str) -> String {
    std::fs::read_to_string(system.example_dir().join("policies").join(name)).unwrap()
}

#[tokio::test]
async fn a_conversation_is_shared_by_policy_alone() {
    let app = TestApp::start(WARDGATE);
    let (doctor, nurse) = (doctor(&app), nurse(&app));
    create(&app, &doctor).await;
    add(&app, &doctor, "user", SAID).await;
    let export = read_export(&get_conversation(&app, &doctor, CHAT).await);
    let key = export["key"].as_str().unwrap();
    assert_eq!(get_conversation(&app, &nurse, key).await.error().0, -32002);

    let rule = r#"
@id("nurses-recall-what-doctor-yenji-said")
permit (principal in Role::"Nurse", action == Action::"recall", resource)
when { resource.owner == User::"dr.yenji" && resource.tenant == principal.tenant };
"#;
    write_policy(&app, "sharing.cedar", rule);
    let shared = until("the nurse may read it", async || {
        let reply = get_conversation(&app, &nurse, key).await;
        reply.json()["result"]
            .is_object()
            .then(|| read_export(&reply))
    })
    .await;
    assert_eq!(shared["messages"][0]["content"], SAID);
    assert_eq!(shared["shared"], true);
    let reading = app.records_with(&["--tool", key]).pop().unwrap();
    assert_eq!(
        [&reading["user"], &reading["action"]],
        ["nurse.joy", "resources/read"]
    );
    assert!(reading["decision"]["id"].is_string(), "{reading}");
    // A reader who is not the owner cannot delete the conversation.
    let params = json!({ "conversation_id": key });
    let refused = send_request(&app, &nurse, "memory/delete", params).await;
    assert_eq!(refused.error(), (-32602, "Unknown conversation".to_owned()));
}

#[tokio::test]
async fn what_one_may_no_longer_ask_a_tool_is_withheld_from_memory_too() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    create(&app, &token).await;
    let tool = json!({ "call_id": "c1", "name": "get_patient_records", "arguments": { "patient_id": "NUGWI" } });
    let turn = json!({ "id": "t1", "state": "complete" });
    let params = json!({ "conversation_id": CHAT, "turn": turn, "messages": [
        { "role": "user", "content": "What does NUGWI take?" },
        { "role": "tool", "content": "Lisinopril", "tool": tool },
        { "role": "assistant", "content": "She takes Lisinopril." },
    ]});
    let reply = send_request(&app, &token, "memory/add_message", params).await;
    assert_eq!(reply.result()["status"], "success");
    let shown = messages(&app, &token).await;
    assert_eq!(shown[1]["content"], "Lisinopril");
    assert_eq!(shown[1]["tool_name"], "get_medical_records");
    assert_eq!(shown[1]["trust"], "data");
    assert_eq!(
        app.records().pop().unwrap()["is_phi_access"],
        true,
        "the tool gives health information"
    );

    let narrowed = policy(&app, "doctor.cedar").replacen(
        r#"[Tag::"clinical", Tag::"staff"]"#,
        r#"[Tag::"staff"]"#,
        1,
    );
    write_policy(&app, "doctor.cedar", &narrowed);
    let shown = until("the result is withheld", async || {
        let shown = messages(&app, &token).await;
        (shown[1]["withheld"] == true).then_some(shown)
    })
    .await;
    assert_eq!(shown[0]["content"], "What does NUGWI take?");
    assert_eq!(shown[1]["content"], "");
    // This message is a summary of the withheld ones.
    assert_eq!(
        [&shown[2]["withheld"], &shown[2]["content"]],
        [&json!(true), &json!("")]
    );
    assert_eq!(app.records().pop().unwrap()["withheld"], 2);
    // A result of a tool that the caller may not call is refused too.
    let params = json!({ "conversation_id": CHAT, "role": "tool", "content": "x", "tool": tool });
    let refused = send_request(&app, &token, "memory/add_message", params).await;
    assert_eq!(
        refused.error(),
        (-32602, "Unknown tool: get_patient_records".to_owned())
    );
}

#[tokio::test]
async fn an_operator_holds_and_erases_and_sees_no_word() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    create(&app, &token).await;
    add(&app, &token, "user", SAID).await;
    let dir = app.data_dir().display().to_string();
    let how = ["--data-dir", &dir];
    let ada = record_manager(&app);
    let operate = |arguments: &[&str]| conversations(&[arguments, &how].concat(), &ada);
    let listed = operate(&["list", "-o", "jsonl"]).success();
    let skeleton: Value = serde_json::from_str(&listed).unwrap();
    let key = skeleton["key"].as_str().unwrap();
    assert_eq!(
        [&skeleton["user"], &skeleton["messages"]],
        [&json!("dr.yenji"), &json!(1)]
    );
    for text in [
        &listed,
        &operate(&["list"]).success(),
        &operate(&["export"]).success(),
    ] {
        assert!(text.contains(key) && !text.contains(CHAT) && !text.contains("Lisinopril"));
    }

    operate(&["hold", "--user", "dr.yenji"]).success();
    let holds = operate(&["holds", "-o", "jsonl"]).success();
    let hold: Value = serde_json::from_str(&holds).unwrap();
    assert_eq!([&hold["user"], &hold["set_by"]], ["dr.yenji", "ada"]);
    let refused = operate(&["erase", key]);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(refused.stderr.contains("hold"), "{}", refused.stderr);
    let of = json!({ "conversation_id": CHAT });
    let refused = send_request(&app, &token, "memory/delete", of).await;
    assert_eq!(refused.error().0, -32602, "{}", refused.body);
    assert_eq!(context(&app, &token).await, [SAID]);

    operate(&["release", "--user", "dr.yenji"]).success();
    operate(&["erase", key]).success();
    assert!(context(&app, &token).await.is_empty());
    let left: Value = serde_json::from_str(&operate(&["list", "-o", "jsonl"]).success()).unwrap();
    assert!(left["erased_at"].is_string(), "the skeleton stays: {left}");
    let changes = app.records_with(&["--user", "ada"]);
    let actions: Vec<&str> = changes
        .iter()
        .map(|change| change["action"].as_str().unwrap())
        .collect();
    assert!(actions.contains(&"conversation.erase"), "{actions:?}");
    let erased = changes
        .iter()
        .find(|change| change["action"] == "conversation.erase");
    assert_eq!(erased.unwrap()["record_id"], key);
}

/// Two tools that access conversations, for clients that support only tools.
const MEMORY_TOOLS: [&str; 2] = [
    r"
  - name: remember
    description: Keeps a text in a conversation of the caller's.
    tags: [staff]
    input_schema:
      type: object
      properties: { conversation_id: { type: string }, content: { type: string } }
      required: [conversation_id, content]
    execute: { type: query, interface: memory, query_type: add_message }
    result: { classes: { message_id: none, position: none } }
",
    r"
  - name: look_up
    description: Finds what was kept, by its words.
    tags: [staff]
    annotations: { readOnlyHint: true }
    input_schema:
      type: object
      properties: { query: { type: string } }
      required: [query]
    execute: { type: query, interface: memory, query_type: search }
    result: { classes: { content: none, role: none, conversation_id: none } }
",
];

#[tokio::test]
async fn clients_that_know_only_tools_remember_by_tools() {
    let app = TestApp::start_with(WARDGATE, &[extra_tools::LOOK_OFTEN]);
    for tool in MEMORY_TOOLS {
        extra_tools::add(&app, tool).await;
    }
    let (doctor, nurse) = (doctor(&app), nurse(&app));
    let client = app.client();
    let kept = json!({ "conversation_id": CHAT, "content": ANSWERED });
    let reply = client.call(&doctor, "remember", kept).await;
    assert_eq!(reply.result()["isError"], false, "{}", reply.body);
    let query = json!({ "query": "daily" });
    let found = client.call(&doctor, "look_up", query.clone()).await;
    assert!(found.body.contains(ANSWERED), "{}", found.body);
    let found = client.call(&nurse, "look_up", query).await;
    assert!(!found.body.contains(ANSWERED), "{}", found.body);
    assert_eq!(context(&app, &doctor).await, [ANSWERED]);
    let shown = messages(&app, &doctor).await;
    assert_eq!(
        shown[0]["trust"], "model",
        "a model wrote it, whoever it says speaks"
    );
}
