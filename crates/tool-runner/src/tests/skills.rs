//! Tests of the skills of an MCP server: only skills that are accurate for clients are listed and returned, and
//! directories are read.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use wardgate_domain::{ColumnTier, OfferKind};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::get_content_request::{Directory, Skill, Wanted};
use wardgate_testkit::{mcp_discovery, mcp_message, mcp_result, serve, until_true};

use super::harness::Harness;
use crate::tests::database;

/// A server of MCP 2026-07-28, with or without the extension.
struct Server {
    extensions: Value,
    heard: Mutex<Vec<Value>>,
}

fn digest(number: u8) -> String {
    format!("sha256:{number:064x}")
}

fn skill(path: &str) -> Value {
    let uri = |file: &str| format!("skill://{path}/{file}");
    let name = path.rsplit('/').next().unwrap();
    json!({
        "uri": uri("SKILL.md"),
        "frontmatter": { "name": name, "description": "d", "license": "MIT" },
        "resources": [
            { "uri": uri("SKILL.md"), "digest": digest(1), "size": 7 },
            { "uri": uri("a/b.py"), "digest": digest(2), "size": 8 },
        ],
    })
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (_, message) = mcp_message(request).await;
    server.heard.lock().unwrap().push(message.clone());
    let params = &message["params"];
    let mut broken = skill("acme/broken");
    broken["resources"][1]["uri"] = "skill://acme/other/x".into();
    let mut result = match message["method"].as_str().unwrap() {
        "server/discover" => {
            mcp_discovery(&json!({ "resources": {}, "extensions": server.extensions }))
        }
        "resources/list" => json!({ "resources": [] }),
        "resources/templates/list" => json!({ "resourceTemplates": [] }),
        "skills/list" if params["cursor"].is_null() => {
            json!({ "skills": [skill("b/two"), broken], "nextCursor": "2" })
        }
        "skills/list" => json!({ "skills": [skill("a/one")] }),
        "skills/get" => {
            let path = params["uri"].as_str().unwrap();
            let path = path
                .strip_prefix("skill://")
                .unwrap()
                .strip_suffix("/SKILL.md")
                .unwrap();
            let of = if path == "a/liar" { "a/other" } else { path };
            json!({ "skill": skill(of) })
        }
        "resources/directory/read" => json!({
            "resources": [
                { "uri": "skill://a/one/x", "name": "x", "size": 1.50 },
                { "name": "without" },
            ],
            "nextCursor": "further",
        }),
        other => panic!("{other}"),
    };
    result["resultType"] = "complete".into();
    mcp_result(&message, &result)
}

async fn start(extensions: Value, offers: &str) -> (Arc<Server>, Harness) {
    let server = Arc::new(Server {
        extensions,
        heard: Mutex::default(),
    });
    let router = Router::new()
        .fallback(answer)
        .with_state(Arc::clone(&server));
    let url = format!("http://{}/mcp", serve(router).await);
    let yaml = format!(
        "sources:\n  up: {{ type: mcp, url: '{url}', private: [127.0.0.0/8], tools: [], {offers}, classes: {{ content: phi.text }} }}\n"
    );
    let harness = Harness::with(&database::sqlite().await, &yaml, |_| ()).await;
    (server, harness)
}

async fn content(harness: &Harness) -> pb::ListContentResponse {
    let mut client = harness.client.clone();
    let listed = client.list_content(pb::ListContentRequest {}).await;
    listed.unwrap().into_inner()
}

fn extension(settings: &Value) -> Value {
    json!({ "io.modelcontextprotocol/skills": settings })
}

async fn got(
    harness: &Harness,
    uri: &str,
    wanted: Wanted,
    tier: ColumnTier,
) -> pb::GetContentResponse {
    let terms = harness.terms_for(OfferKind::Resources, tier).await;
    let request = harness.content_request_to("up", &json!({ "uri": uri }), wanted, Some(&terms));
    harness.got(request).await.unwrap()
}

#[tokio::test]
async fn skills_are_listed_whole_in_order_and_by_uris_that_name_their_source() {
    let directories = extension(&json!({ "directoryRead": true }));
    let (_, harness) = start(directories, "resources: all, skills: all").await;
    until_true("they are listed", async || {
        !content(&harness).await.skills.is_empty()
    })
    .await;
    let listed = content(&harness).await;
    let names: Vec<_> = listed
        .skills
        .iter()
        .map(|it| (&*it.name, &*it.own_name))
        .collect();
    assert_eq!(
        names,
        [
            ("skill://up/a/one/SKILL.md", "skill://a/one/SKILL.md"),
            ("skill://up/b/two/SKILL.md", "skill://b/two/SKILL.md"),
        ]
    );
    let entry: Value = serde_json::from_slice(&listed.skills[0].definition_json).unwrap();
    let mut expected = skill("up/a/one");
    expected.as_object_mut().unwrap().remove("uri");
    assert_eq!(entry, expected);
    assert!(listed.sources[0].skills && listed.sources[0].directories);
}

#[tokio::test]
async fn only_what_the_settings_name_is_offered_and_without_them_nobody_is_asked() {
    let on = extension(&json!({}));
    let one = "resources: all, skills: ['skill://a/one/SKILL.md']";
    let (_, harness) = start(on.clone(), one).await;
    until_true("it is listed", async || {
        content(&harness).await.skills.len() == 1
    })
    .await;
    assert!(!content(&harness).await.sources[0].directories);
    let other = got(
        &harness,
        "skill://b/two/SKILL.md",
        Wanted::Skill(Skill {}),
        ColumnTier::Clear,
    );
    assert_eq!(other.await.facts.unwrap().error_kind, "unknown");

    let (server, harness) = start(on, "resources: all").await;
    let asked = |method: &str| {
        let heard = server.heard.lock().unwrap();
        heard.iter().any(|message| message["method"] == method)
    };
    until_true("it was asked for resources", async || {
        asked("resources/templates/list")
    })
    .await;
    assert!(!asked("skills/list"));
    assert!(!content(&harness).await.sources[0].skills);
    let wanted = [
        Wanted::Skill(Skill {}),
        Wanted::Directory(Directory::default()),
    ];
    for wanted in wanted {
        let none = got(
            &harness,
            "skill://a/one/SKILL.md",
            wanted,
            ColumnTier::Clear,
        )
        .await;
        assert_eq!(none.facts.unwrap().error_kind, "unknown");
    }
    assert!(!asked("skills/get") && !asked("resources/directory/read"));
}

#[tokio::test]
async fn a_server_without_the_extension_has_none() {
    let (server, harness) = start(json!({}), "resources: all, skills: all").await;
    until_true("it said so", async || {
        !content(&harness).await.sources[0].skills
    })
    .await;
    let heard = server.heard.lock().unwrap().clone();
    assert!(heard.iter().all(|it| it["method"] != "skills/list"));
}

#[tokio::test]
async fn one_skill_is_given_as_it_is_now_and_only_where_its_digests_are_true() {
    let (_, harness) = start(extension(&json!({})), "resources: all, skills: all").await;
    let wanted = || Wanted::Skill(Skill {});
    let given = got(
        &harness,
        "skill://c/new/SKILL.md",
        wanted(),
        ColumnTier::Clear,
    )
    .await;
    let result: Value = serde_json::from_slice(&given.result_json).unwrap();
    assert_eq!(result, json!({ "skill": skill("up/c/new") }));
    let facts = given.facts.unwrap();
    assert!(facts.phi && facts.rows == 1, "{facts:?}");
    // A caller who would read other bytes than the listed ones is shown no skill.
    let masked = got(
        &harness,
        "skill://c/new/SKILL.md",
        wanted(),
        ColumnTier::Dropped,
    )
    .await;
    assert_eq!(masked.facts.unwrap().error_kind, "unknown");
    assert!(masked.result_json.is_empty());
    let liar = got(
        &harness,
        "skill://a/liar/SKILL.md",
        wanted(),
        ColumnTier::Clear,
    )
    .await;
    assert_eq!(liar.facts.unwrap().error_kind, "bad_result");
}

#[tokio::test]
async fn a_directory_is_read_a_page_at_a_time() {
    let directories = extension(&json!({ "directoryRead": true }));
    let (server, harness) = start(directories, "resources: all, skills: all").await;
    let cursor = Some("from here".to_owned());
    let wanted = Wanted::Directory(Directory { cursor });
    let read = got(&harness, "skill://a/one", wanted, ColumnTier::Clear).await;
    let read = String::from_utf8(read.result_json.to_vec()).unwrap();
    assert_eq!(
        read,
        r#"{"resources":[{"uri":"skill://up/a/one/x","name":"x","size":1.5}],"nextCursor":"further"}"#
    );
    let heard = server.heard.lock().unwrap().clone();
    let asked = heard
        .iter()
        .find(|it| it["method"] == "resources/directory/read");
    let params = &asked.unwrap()["params"];
    assert_eq!(
        (&params["uri"], &params["cursor"]),
        (&json!("skill://a/one"), &json!("from here"))
    );
}
