//! Tests of prompts and resources of an MCP server, which runs as a separate program, under names of the catalogue.

use std::path::PathBuf;

use serde_json::{Value, json};
use wardgate_domain::{ColumnTier, OfferKind, PermitTerms};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::get_content_request::{Completion, Prompt, Resource, Wanted};
use wardgate_testkit::until_true;

use super::harness::Harness;
use crate::tests::database;

/// MCP server as a short shell script. A file in its directory contains the answer to each method, and `heard` receives
/// the messages. The server is unavailable while a file `away` exists. A file `changed` makes it announce that its
/// lists changed, and a file `updated` that the resource whose URI the file contains changed.
const SERVER: &str = r#"
[ -e "$1/away" ] && exit 1
(
  while sleep 0.05; do
    [ -e "$1/away" ] && kill $$ && exit
    if [ -e "$1/changed" ]; then
      rm "$1/changed"
      echo '{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}'
      echo '{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}'
    fi
    if [ -e "$1/updated" ]; then
      printf '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"%s"}}\n' "$(cat "$1/updated")"
      rm "$1/updated"
    fi
  done
) &
while IFS= read -r line; do
  printf '%s\n' "$line" >> "$1/heard"
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
  method=$(printf '%s' "$line" | sed -n 's/.*"method":"\([^"]*\)".*/\1/p' | tr / _)
  case $method in
    initialize) answer='"result":{"protocolVersion":"2025-06-18","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"s","version":"1"}}' ;;
    notifications_*) continue ;;
    *) answer='"error":{"code":-32601,"message":"no"}'; [ -e "$1/$method" ] && answer=$(cat "$1/$method") ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$answer"
done
kill %1
"#;

pub(super) const NOTES: &str = r#"
sources:
  notes:
    type: mcp
    command: [sh, server.sh, .]
    prefix: n.
    tags: [near]
    classes: { content: phi.text }
    prompts: all
    resources: ["file:///a", "file:///{name}"]
toolsets:
  close: { tags: [near] }
"#;

pub(super) struct World {
    pub(super) harness: Harness,
    pub(super) dir: PathBuf,
}

impl World {
    pub(super) async fn start(yaml: &str) -> Self {
        let database = database::sqlite().await;
        let harness = Harness::with(&database, yaml, |config| {
            let dir = config.catalogue.parent().unwrap();
            std::fs::write(dir.join("server.sh"), SERVER).unwrap();
            let lists = [
                (
                    "prompts_list",
                    json!({ "prompts": [{ "name": "greet", "title": "Greet" }, { "name": "not a name" }, 7] }),
                ),
                (
                    "resources_list",
                    json!({ "resources": [
                        { "uri": "file:///a", "name": "a" },
                        { "uri": "file:///secret", "name": "s" },
                    ] }),
                ),
                (
                    "resources_templates_list",
                    json!({ "resourceTemplates": [{ "uriTemplate": "file:///{name}", "name": "any" }] }),
                ),
            ];
            for (file, list) in lists {
                std::fs::write(dir.join(file), format!("\"result\":{list}")).unwrap();
            }
        })
        .await;
        let dir = harness.file.parent().unwrap().to_owned();
        Self { harness, dir }
    }

    /// Sets the answer of the server to `method`.
    pub(super) fn answers(&self, method: &str, answer: &str) {
        let file = self.dir.join(method.replace('/', "_"));
        let beside = self.dir.join("beside");
        std::fs::write(&beside, answer).unwrap();
        std::fs::rename(&beside, file).unwrap();
    }

    async fn content(&self) -> pb::ListContentResponse {
        let mut client = self.harness.client.clone();
        let listed = client.list_content(pb::ListContentRequest {}).await;
        listed.unwrap().into_inner()
    }

    pub(super) async fn is_missed(&self) -> bool {
        self.content().await.sources[0].is_missing
    }

    pub(super) async fn lists(&self, prompts: &[&str], resources: &[&str], templates: &[&str]) {
        until_true("the lists", async || {
            let listed = self.content().await;
            names(&listed.prompts) == prompts
                && names(&listed.resources) == resources
                && names(&listed.resource_templates) == templates
        })
        .await;
    }

    pub(super) async fn terms(&self, kind: OfferKind, tier: ColumnTier) -> PermitTerms {
        self.harness.terms_for(kind, tier).await
    }

    async fn got(&self, decided: Value, wanted: Wanted, terms: &PermitTerms) -> (Value, String) {
        let request = self
            .harness
            .content_request_to("notes", &decided, wanted, Some(terms));
        let answer = self.harness.got(request).await.unwrap();
        let kind = answer.facts.unwrap().error_kind;
        let result = serde_json::from_slice(&answer.result_json).unwrap_or_default();
        (result, kind)
    }

    async fn read_resource(&self, uri: &str) -> (Value, String) {
        let terms = self.terms(OfferKind::Resources, ColumnTier::Clear).await;
        let wanted = Wanted::Resource(Resource {});
        self.got(json!({ "uri": uri }), wanted, &terms).await
    }
}

fn names(entries: &[pb::ContentEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.name.as_str()).collect()
}

#[tokio::test]
async fn what_a_server_lists_is_offered_under_names_of_the_catalogue() {
    let world = World::start(NOTES).await;
    world
        .lists(
            &["n.greet"],
            &["notes+file:///a"],
            &["notes+file:///{name}"],
        )
        .await;
    let listed = world.content().await;
    assert_eq!(listed.prompts[0].own_name, "greet");
    assert_eq!(listed.prompts[0].definition_json, r#"{"title":"Greet"}"#);
    assert_eq!(listed.resources[0].own_name, "file:///a");
    let source = &listed.sources[0];
    assert!(source.is_upstream && source.prompts && source.resources && !source.is_missing);
    assert_eq!(source.toolsets, ["close"]);
    // Changes are listed, and a server that became unavailable keeps its last lists.
    world.answers("prompts/list", r#""result":{"prompts":[{"name":"leave"}]}"#);
    std::fs::write(world.dir.join("changed"), "").unwrap();
    until_true("the change", async || {
        names(&world.content().await.prompts) == ["n.leave"]
    })
    .await;
    std::fs::write(world.dir.join("away"), "").unwrap();
    until_true("the source is missed", async || {
        let listed = world.content().await;
        listed.sources[0].is_missing && names(&listed.prompts) == ["n.leave"]
    })
    .await;
}

#[tokio::test]
async fn a_server_whose_file_does_not_say_so_offers_none() {
    let yaml = NOTES.replace("    prompts: all\n", "");
    let yaml = yaml.replace("    resources: [\"file:///a\", \"file:///{name}\"]\n", "");
    let world = World::start(&yaml).await;
    assert!(world.content().await.sources.is_empty());
    let terms = world.terms(OfferKind::Resources, ColumnTier::Clear).await;
    let (decided, wanted) = (json!({ "uri": "file:///a" }), Wanted::Resource(Resource {}));
    let request = world
        .harness
        .content_request_to("notes", &decided, wanted, Some(&terms));
    let refused = world.harness.got(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::NotFound, "{refused}");
}

#[tokio::test]
async fn a_resource_is_asked_for_by_its_own_uri_and_shown_by_the_clients() {
    let world = World::start(NOTES).await;
    let answer = r#""result":{"contents":[{"uri":"file:///a","text":"x"},{"uri":"file:///a/b","text":"y"}],"_meta":{"x":1}}"#;
    world.answers("resources/read", answer);
    let (result, _) = world.read_resource("file:///b").await;
    assert_eq!(
        result,
        json!({ "contents": [
            { "uri": "notes+file:///a", "text": "x" },
            { "uri": "notes+file:///a/b", "text": "y" },
        ] })
    );
    let heard = std::fs::read_to_string(world.dir.join("heard")).unwrap();
    assert!(heard.contains(r#""params":{"uri":"file:///b"}"#), "{heard}");
    // The server receives requests only for resources that are offered.
    let (_, kind) = world.read_resource("file:///dir/secret").await;
    assert_eq!(kind, "unknown");
    let heard = std::fs::read_to_string(world.dir.join("heard")).unwrap();
    assert!(!heard.contains("dir/secret"));
    let terms = world.terms(OfferKind::Resources, ColumnTier::Partial).await;
    let wanted = Wanted::Resource(Resource {});
    let (masked, _) = world
        .got(json!({ "uri": "file:///a" }), wanted, &terms)
        .await;
    let part = json!({ "uri": "notes+file:///a", "text": "[withheld]" });
    assert_eq!(masked, json!({ "contents": [part, part] }));
}

#[tokio::test]
async fn a_prompt_goes_through_with_its_links() {
    let world = World::start(NOTES).await;
    let link = r#"{"type":"resource_link","uri":"file:///a","name":"a"}"#;
    let answer = format!(r#""result":{{"messages":[{{"role":"user","content":{link}}}]}}"#);
    world.answers("prompts/get", &answer);
    let terms = world.terms(OfferKind::Prompts, ColumnTier::Clear).await;
    let prompt = |arguments: &str| {
        Wanted::Prompt(Prompt {
            arguments_json: arguments.to_owned().into(),
        })
    };
    let named = json!({ "name": "greet" });
    let (result, _) = world
        .got(named.clone(), prompt(r#"{"who":"Ann"}"#), &terms)
        .await;
    assert_eq!(result["messages"][0]["content"]["uri"], "notes+file:///a");
    let heard = std::fs::read_to_string(world.dir.join("heard")).unwrap();
    assert!(
        heard.contains(r#""params":{"name":"greet","arguments":{"who":"Ann"}}"#),
        "{heard}"
    );
    let dropped = world.terms(OfferKind::Prompts, ColumnTier::Dropped).await;
    let (result, _) = world.got(named, prompt(""), &dropped).await;
    let text = json!({ "type": "text", "text": "The content is withheld." });
    assert_eq!(
        result,
        json!({ "messages": [{ "role": "user", "content": text }] })
    );
}

#[tokio::test]
async fn values_of_a_completion_are_content_and_a_server_that_completes_nothing_has_none() {
    let world = World::start(NOTES).await;
    let terms = world.terms(OfferKind::Prompts, ColumnTier::Clear).await;
    let wanted = || {
        Wanted::Completion(Completion {
            argument: "who".to_owned(),
            value: "A".to_owned(),
            ..Completion::default()
        })
    };
    let named = json!({ "name": "greet" });
    let (none, _) = world.got(named.clone(), wanted(), &terms).await;
    assert_eq!(none, json!({ "completion": { "values": [] } }));
    let answer = r#""result":{"completion":{"values":["Ann",7],"total":1,"other":2}}"#;
    world.answers("completion/complete", answer);
    let (some, _) = world.got(named.clone(), wanted(), &terms).await;
    assert_eq!(
        some,
        json!({ "completion": { "values": ["Ann"], "total": 1 } })
    );
    let masked = world.terms(OfferKind::Prompts, ColumnTier::Partial).await;
    let (masked, _) = world.got(named, wanted(), &masked).await;
    assert_eq!(masked, none);
}

#[tokio::test]
async fn a_failure_is_described_without_the_servers_words() {
    let world = World::start(NOTES).await;
    for (answer, expected) in [
        (r#""error":{"code":-32002,"message":"secret"}"#, "unknown"),
        (r#""error":{"code":-32602,"message":"secret"}"#, "unknown"),
        (
            r#""error":{"code":-32603,"message":"secret"}"#,
            "tool_error",
        ),
        (
            r#""result":{"resultType":"input_required","inputRequests":{}}"#,
            "input_required",
        ),
        (r#""result":{"contents":"secret"}"#, "bad_result"),
    ] {
        world.answers("resources/read", answer);
        let terms = world.terms(OfferKind::Resources, ColumnTier::Clear).await;
        let (decided, wanted) = (json!({ "uri": "file:///a" }), Wanted::Resource(Resource {}));
        let request = world
            .harness
            .content_request_to("notes", &decided, wanted, Some(&terms));
        let answer = world.harness.got(request).await.unwrap();
        assert!(!answer.error.is_empty() && !answer.error.contains("secret"));
        assert_eq!(answer.facts.unwrap().error_kind, expected);
    }
    std::fs::write(world.dir.join("away"), "").unwrap();
    until_true("it is away", async || {
        world.read_resource("file:///a").await.1 == "source_unavailable"
    })
    .await;
}
