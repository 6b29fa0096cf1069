//! Skills of sources: announced, listed and returned to callers who may read their files.

use serde_json::{Value, json};
use wardgate_domain::{ColumnTier, OfferKind, ToolFacts};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::get_content_request::Wanted;

use crate::memory::create_request;
use crate::world::{LEGACY, MODERN, Reply, World, definition};
use wardgate_testkit::{
    AppendBehavior, PolicyAnswer, content_response, listed_tool, tool_facts, until_true,
};

const EXTENSION: &str = "/result/capabilities/extensions/io.modelcontextprotocol~1skills";
const METHODS: [&str; 3] = ["skills/list", "skills/get", "resources/directory/read"];

fn facts() -> ToolFacts {
    ToolFacts {
        kind: OfferKind::Resources,
        tags: ["upstream:notes".to_owned()].into(),
        classes: vec!["note.text".parse().unwrap()],
        ..tool_facts("notes")
    }
}

/// Returns the URI of a path: in the view of the source if `own`, otherwise in the view of everything.
fn uri(own: bool, path: &str) -> String {
    let source = if own { "" } else { "notes/" };
    format!("skill://{source}{path}")
}

fn skill(own: bool, name: &str) -> Value {
    let file = |path: &str| json!({ "uri": uri(own, &format!("{name}/{path}")), "digest": format!("sha256:{:064}", 1), "size": 7 });
    json!({
        "uri": uri(own, &format!("{name}/SKILL.md")),
        "frontmatter": { "name": name, "description": "d" },
        "resources": [file("SKILL.md"), file("a.py"), file("secret.md")],
    })
}

/// Offers the source `notes` with this number of skills. It can read directories if `directories` is true.
async fn offer(world: &World, skills: usize, directories: bool) {
    let source = pb::Source {
        name: "notes".to_owned(),
        facts: vec![
            (&facts()).into(),
            (&ToolFacts {
                kind: OfferKind::Connect,
                ..facts()
            })
                .into(),
        ],
        ..pb::Source::default()
    };
    let entry = |number: usize| {
        let name = format!("s{number:03}");
        let mut entry = skill(false, &name);
        entry.as_object_mut().unwrap().remove("uri");
        pb::ContentEntry {
            source: "notes".to_owned(),
            name: uri(false, &format!("{name}/SKILL.md")),
            own_name: uri(true, &format!("{name}/SKILL.md")),
            definition_json: entry.to_string().into(),
        }
    };
    let listed = pb::ListContentResponse {
        sources: vec![pb::ContentSource {
            name: "notes".to_owned(),
            resources: true,
            toolsets: vec!["near".to_owned()],
            is_upstream: true,
            is_missing: true,
            skills: true,
            directories,
            ..pb::ContentSource::default()
        }],
        skills: (0..skills).map(entry).collect(),
        ..pb::ListContentResponse::default()
    };
    world.policy.shows("note.text", ColumnTier::Clear);
    *world.tool_runner.content.lock().unwrap() = (vec![source], listed);
    let tools = ["reads", "extra"].map(|name| listed_tool(name, &definition()));
    world.tool_runner.configure(tools.to_vec());
    until_true("the gateway knows the new catalogue", async || {
        let discovered = Reply::to(world.message(MODERN, "server/discover", "")).await;
        !discovered.at(EXTENSION).is_null()
    })
    .await;
}

async fn world() -> World {
    let world = World::start_without_memory(json!({})).await;
    offer(&world, 2, true).await;
    world
}

async fn at(world: &World, path: &str, method: &str, params: &Value) -> Reply {
    let mut request = create_request(world, MODERN, method, params)
        .build()
        .unwrap();
    *request.url_mut() = world.url(path).parse().unwrap();
    Reply::to(reqwest::RequestBuilder::from_parts(
        world.http.clone(),
        request,
    ))
    .await
}

async fn list(world: &World) -> Vec<Value> {
    let reply = at(world, "/mcp", "skills/list", &json!({})).await;
    let skills = reply.at("/result/skills");
    skills
        .as_array()
        .unwrap_or_else(|| panic!("{reply:?}"))
        .clone()
}

#[tokio::test]
async fn the_extension_is_announced_where_there_are_any_and_only_in_the_version_that_has_it() {
    let world = world().await;
    for (path, is_there) in [
        ("/mcp", true),
        ("/mcp/near", true),
        ("/mcp/far", false),
        ("/mcp/upstream/notes", true),
    ] {
        let discovered = at(&world, path, "server/discover", &json!({})).await;
        let expected = if is_there {
            json!({ "directoryRead": true })
        } else {
            Value::Null
        };
        assert_eq!(discovered.at(EXTENSION), expected, "{path}");
        for method in METHODS {
            let params = json!({ "uri": uri(path.contains("upstream"), "s000/SKILL.md") });
            let reply = at(&world, path, method, &params).await;
            assert_eq!(reply.status == 404, !is_there, "{path} {method}: {reply:?}");
        }
    }
    let initialized = world.message(LEGACY, "initialize", r#""protocolVersion":"2025-11-25""#);
    let initialized = Reply::to(initialized).await;
    assert!(initialized.at("/result/capabilities/extensions").is_null());
    for method in METHODS {
        let older = Reply::to(create_request(
            &world,
            LEGACY,
            method,
            &json!({ "uri": "a:b" }),
        ))
        .await;
        assert_eq!(older.code(), -32601, "{method}");
    }
    // Without support for directories there is no such method.
    offer(&world, 1, false).await;
    until_true("the gateway knows it", async || {
        let discovered = at(&world, "/mcp", "server/discover", &json!({})).await;
        discovered.at(EXTENSION) == json!({})
    })
    .await;
    let reply = at(
        &world,
        "/mcp",
        METHODS[2],
        &json!({ "uri": "skill://notes/s000" }),
    )
    .await;
    assert_eq!((reply.status, reply.code()), (404, -32601));
}

#[tokio::test]
async fn without_any_there_is_no_extension() {
    let world = World::start_without_memory(json!({})).await;
    let discovered = Reply::to(world.message(MODERN, "server/discover", "")).await;
    assert!(discovered.at("/result/capabilities/extensions").is_null());
    for method in METHODS {
        let reply = at(
            &world,
            "/mcp",
            method,
            &json!({ "uri": "skill://notes/a/SKILL.md" }),
        )
        .await;
        assert_eq!((reply.status, reply.code()), (404, -32601), "{method}");
    }
}

#[tokio::test]
async fn each_view_lists_skills_and_their_files_by_the_uris_it_has_for_them() {
    let world = world().await;
    for (path, own) in [
        ("/mcp", false),
        ("/mcp/near", false),
        ("/mcp/upstream/notes", true),
    ] {
        let reply = at(&world, path, "skills/list", &json!({})).await;
        let expected = json!([skill(own, "s000"), skill(own, "s001")]);
        assert_eq!(reply.at("/result/skills"), expected, "{path}");
        assert_eq!(reply.at("/result/cacheScope"), "private");
        assert!(reply.at("/result/ttlMs").is_u64());
        let missing = reply.at("/result/_meta/dev.wardgate~1missingUpstreams");
        assert_eq!(missing, json!(["notes"]));
    }
}

#[tokio::test]
async fn a_caller_sees_no_skill_and_no_file_that_they_may_not_read() {
    let world = world().await;
    world.policy.forbid("secret.md");
    world.policy.forbid("s001/SKILL.md");
    world.policy.says(PolicyAnswer::AllowThese);
    world.policy.change(b"others");
    until_true("the gateway knows the policies", async || {
        list(&world).await.len() == 1
    })
    .await;
    let mut expected = skill(false, "s000");
    expected["resources"].as_array_mut().unwrap().pop();
    assert_eq!(list(&world).await, [expected.clone()]);

    let given = content_response(&json!({ "skill": skill(false, "s000") }).to_string());
    world.tool_runner.gives.lock().unwrap().push_back(Ok(given));
    let params = json!({ "uri": expected["uri"] });
    let got = at(&world, "/mcp", "skills/get", &params).await;
    assert_eq!(got.at("/result/skill"), expected, "{got:?}");
    let params = json!({ "uri": uri(false, "s001/SKILL.md") });
    let refused = at(&world, "/mcp", "skills/get", &params).await;
    assert_eq!(refused.code(), -32602, "{refused:?}");
    let params = json!({ "uri": "skill://nobody/s001/SKILL.md" });
    assert_eq!(
        at(&world, "/mcp", "skills/get", &params).await.code(),
        -32602
    );
    assert_eq!(world.tool_runner.got.count(), 1);
}

#[tokio::test]
async fn where_texts_are_not_shown_as_they_are_there_are_no_digests_to_tell() {
    let world = world().await;
    assert_eq!(list(&world).await.len(), 2);
    world.policy.shows("note.text", ColumnTier::Dropped);
    world.policy.change(b"others");
    until_true("the gateway knows the policies", async || {
        list(&world).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn one_skill_is_on_record_before_it_is_given() {
    let world = world().await;
    for (path, own) in [("/mcp", false), ("/mcp/upstream/notes", true)] {
        let given = content_response(&json!({ "skill": skill(false, "s000") }).to_string());
        world.tool_runner.gives.lock().unwrap().push_back(Ok(given));
        let params = json!({ "uri": uri(own, "s000/SKILL.md") });
        let got = at(&world, path, "skills/get", &params).await;
        assert_eq!(got.at("/result/skill"), skill(own, "s000"), "{got:?}");
        assert_eq!(got.at("/result/cacheScope"), "private");
        assert_eq!(got.at("/result/ttlMs"), 0);
        let asked = world.tool_runner.got.entries().pop().unwrap();
        assert_eq!(asked.decided_json, r#"{"uri":"skill://s000/SKILL.md"}"#);
        assert!(matches!(asked.wanted, Some(Wanted::Skill(_))));
        let outcome = world.audit.outcomes.entries().pop().unwrap();
        assert_eq!(outcome.call.method, "skills/get");
        assert_eq!(
            got.at("/result/_meta/dev.wardgate~1callId"),
            outcome.call.call_id.to_string()
        );
    }
    world
        .audit
        .next([AppendBehavior::Fail, AppendBehavior::Fail]);
    let params = json!({ "uri": uri(false, "s000/SKILL.md") });
    let withheld = at(&world, "/mcp", "skills/get", &params).await;
    assert_eq!(withheld.code(), -32603, "{withheld:?}");
    assert!(!withheld.text.contains("sha256"));
}

#[tokio::test]
async fn a_long_list_of_skills_has_pages() {
    let world = World::start_without_memory(json!({})).await;
    offer(&world, 45, true).await;
    let (mut params, mut sizes, mut all) = (json!({}), Vec::new(), Vec::new());
    loop {
        let page = at(&world, "/mcp", "skills/list", &params).await;
        let skills = page.at("/result/skills");
        let uris = skills
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["uri"].clone());
        sizes.push(uris.len());
        all.extend(uris);
        match page.at("/result/nextCursor") {
            Value::Null => break,
            next => params = json!({ "cursor": next }),
        }
    }
    assert_eq!(sizes, [20, 20, 5]);
    assert!(all.is_sorted_by_key(|uri| uri.as_str().unwrap().to_owned()));
    let wrong = at(&world, "/mcp", "skills/list", &json!({ "cursor": "?" })).await;
    assert_eq!(wrong.code(), -32602);
}

#[tokio::test]
async fn a_directory_shows_what_may_be_read_and_goes_on_for_its_caller_alone() {
    let world = world().await;
    world.policy.forbid("secret.md");
    world.policy.says(PolicyAnswer::AllowThese);
    world.policy.change(b"others");
    let page = |own: bool| {
        json!({ "resources": [
            { "uri": uri(own, "s000/a.py"), "name": "a.py", "size": 7 },
            { "uri": uri(own, "s000/secret.md"), "name": "secret.md" },
            { "uri": uri(own, "s000/more"), "name": "more", "mimeType": "inode/directory" },
        ] })
    };
    let gives = |next: &str| {
        let mut given = page(false);
        given["nextCursor"] = next.into();
        let given = Ok(content_response(&given.to_string()));
        world.tool_runner.gives.lock().unwrap().push_back(given);
    };
    for (path, own) in [("/mcp", false), ("/mcp/upstream/notes", true)] {
        gives("the servers own");
        let params = json!({ "uri": uri(own, "s000") });
        let read = at(&world, path, METHODS[2], &params).await;
        let mut expected = page(own);
        expected["resources"].as_array_mut().unwrap().remove(1);
        assert_eq!(
            read.at("/result/resources"),
            expected["resources"],
            "{read:?}"
        );
        assert!(!read.text.contains("the servers own"));
        let next = read.at("/result/nextCursor");

        gives("");
        let further = json!({ "uri": uri(own, "s000"), "cursor": next });
        let read = at(&world, path, METHODS[2], &further).await;
        assert_eq!(read.status, 200, "{read:?}");
        let Some(Wanted::Directory(asked)) = world.tool_runner.got.entries().pop().unwrap().wanted
        else {
            panic!("no directory")
        };
        assert_eq!(asked.cursor.as_deref(), Some("the servers own"));
        let outcome = world.audit.outcomes.entries().pop().unwrap();
        assert_eq!(outcome.call.method, METHODS[2]);
        // A cursor of another directory and an invalid cursor are refused.
        let before = world.tool_runner.got.count();
        for (uri, cursor) in [
            (uri(own, "s001"), next.clone()),
            (uri(own, "s000"), "x".into()),
        ] {
            let params = json!({ "uri": uri, "cursor": cursor });
            let refused = at(&world, path, METHODS[2], &params).await;
            assert_eq!(refused.code(), -32602, "{refused:?}");
        }
        assert_eq!(world.tool_runner.got.count(), before);
    }
}
