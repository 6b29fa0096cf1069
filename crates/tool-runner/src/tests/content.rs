//! Tests of the prompts and resources of `tools.yaml`: they need a permit, are redacted by class, and follow the file
//! in force.

use serde_json::{Value, json};
use wardgate_domain::{CallId, ColumnTier, Digest, OfferKind, PermitTerms, ToolFacts};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::get_content_request::{Completion, Prompt, Resource, Wanted};
use wardgate_testkit::until_true;

use wardgate_rpc::Readiness;

use super::harness::{Harness, VALIDITY};
use crate::tests::database;

const GUIDES: &str = r#"
sources:
  guides:
    type: content
    tags: [near]
    classes: { content: phi.text }
    prompts:
      - name: greet
        arguments: { who: { type: string, required: true }, tone: { enum: [warm, cold], default: warm } }
        messages:
          - { text: "A {tone} word to {who}." }
          - { role: assistant, resource: "guide://door" }
    resources:
      - { uri: "guide://door", name: door, mime_type: text/plain, text: Knock. }
      - { uri_template: "guide://room/{room}", name: room, text: "Room {room}." }
toolsets:
  close: { tags: [near] }
  other: { tags: [far] }
"#;

async fn harness() -> Harness {
    Harness::with(&database::sqlite().await, GUIDES, |_| ()).await
}

fn prompt(arguments: &str) -> Wanted {
    Wanted::Prompt(Prompt {
        arguments_json: arguments.to_owned().into(),
    })
}

fn resource() -> Wanted {
    Wanted::Resource(Resource {})
}

fn completion(argument: &str, value: &str) -> Wanted {
    Wanted::Completion(Completion {
        argument: argument.to_owned(),
        value: value.to_owned(),
        ..Completion::default()
    })
}

impl Harness {
    async fn facts_of(&self, kind: OfferKind) -> ToolFacts {
        let [source] = &self.tools().await.sources[..] else {
            panic!("not one source")
        };
        let facts = source.facts.iter().cloned();
        let mut facts = facts.map(|facts| ToolFacts::try_from(facts).unwrap());
        facts.find(|facts| facts.kind == kind).unwrap()
    }

    pub(super) async fn terms_for(&self, kind: OfferKind, tier: ColumnTier) -> PermitTerms {
        self.terms_of(self.facts_of(kind).await, tier)
    }

    fn content_request(
        &self,
        decided: &Value,
        wanted: Wanted,
        terms: Option<&PermitTerms>,
    ) -> pb::GetContentRequest {
        self.content_request_to("guides", decided, wanted, terms)
    }

    pub(super) fn content_request_to(
        &self,
        source: &str,
        decided: &Value,
        wanted: Wanted,
        terms: Option<&PermitTerms>,
    ) -> pb::GetContentRequest {
        pb::GetContentRequest {
            call_id: CallId::new(&self.ambient).to_string(),
            caller: Some((&self.caller).into()),
            source: source.to_owned(),
            permit: terms.map(|terms| (&self.signer.sign(terms)).into()),
            decided_json: decided.to_string().into(),
            wanted: Some(wanted),
            interaction: None,
            caller_token: String::new(),
        }
    }

    pub(super) async fn got(
        &self,
        request: pb::GetContentRequest,
    ) -> Result<pb::GetContentResponse, tonic::Status> {
        let mut client = self.client.clone();
        Ok(client.get_content(request).await?.into_inner())
    }

    async fn content(&self) -> pb::ListContentResponse {
        let mut client = self.client.clone();
        let listed = client.list_content(pb::ListContentRequest {}).await;
        listed.unwrap().into_inner()
    }
}

fn result(answer: &pb::GetContentResponse) -> Value {
    assert_eq!(answer.error, "");
    serde_json::from_slice(&answer.result_json).unwrap()
}

#[tokio::test]
async fn what_the_file_offers_is_listed_with_the_toolsets_that_see_it() {
    let harness = harness().await;
    let listed = harness.content().await;
    assert_eq!(
        listed.catalogue_version,
        harness.tools().await.catalogue_version
    );
    let [source] = &listed.sources[..] else {
        panic!("not one")
    };
    assert!(source.prompts && source.resources && !source.is_upstream);
    assert_eq!(source.toolsets, ["close"]);
    let names = |entries: &[pb::ContentEntry]| -> Vec<String> {
        entries.iter().map(|entry| entry.name.clone()).collect()
    };
    assert_eq!(names(&listed.prompts), ["greet"]);
    assert_eq!(names(&listed.resources), ["guide://door"]);
    assert_eq!(names(&listed.resource_templates), ["guide://room/{room}"]);
}

#[tokio::test]
async fn nothing_is_given_without_a_permit_for_it() {
    let harness = harness().await;
    let (name, uri) = (json!({ "name": "greet" }), json!({ "uri": "guide://door" }));
    let prompts = harness
        .terms_for(OfferKind::Prompts, ColumnTier::Clear)
        .await;
    let resources = harness
        .terms_for(OfferKind::Resources, ColumnTier::Clear)
        .await;
    let bound = PermitTerms {
        arguments_digest: Some(Digest::compute(uri.to_string().as_bytes())),
        ..resources.clone()
    };
    let other = json!({ "uri": "guide://room/1" });
    for (decided, wanted, terms) in [
        (&uri, resource(), None),
        (&uri, resource(), Some(&prompts)),
        (&name, prompt(r#"{"who":"you"}"#), Some(&resources)),
        (&name, completion("tone", ""), Some(&resources)),
        (&other, resource(), Some(&bound)),
    ] {
        let refused = harness
            .got(harness.content_request(decided, wanted, terms))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused}");
    }
    let read = harness
        .got(harness.content_request(&uri, resource(), Some(&bound)))
        .await
        .unwrap();
    assert_eq!(result(&read)["contents"][0]["text"], "Knock.");
    // The requested content must match the subject of the decision.
    for (decided, wanted) in [
        (&name, resource()),
        (&uri, prompt("{}")),
        (
            &json!({ "name": "greet", "uri": "guide://door" }),
            resource(),
        ),
        (&json!({}), resource()),
    ] {
        let refused = harness
            .got(harness.content_request(decided, wanted, Some(&resources)))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
    }
}

#[tokio::test]
async fn a_class_that_is_not_clear_leaves_as_its_tier_lets_it() {
    let harness = harness().await;
    let name = json!({ "name": "greet" });
    let uri = json!({ "uri": "guide://door" });
    for (tier, shown, phi) in [
        (ColumnTier::Partial, "[withheld]", true),
        (ColumnTier::Dropped, "The content is withheld.", false),
    ] {
        let terms = harness.terms_for(OfferKind::Prompts, tier).await;
        let got = harness
            .got(harness.content_request(&name, prompt(r#"{"who":"Ann"}"#), Some(&terms)))
            .await
            .unwrap();
        let says = |role| json!({ "role": role, "content": { "type": "text", "text": shown } });
        assert_eq!(
            result(&got),
            json!({ "messages": [says("user"), says("assistant")] })
        );
        let facts = got.facts.unwrap();
        assert_eq!((facts.rows, facts.fields_redacted, facts.phi), (2, 2, phi));
        let terms = harness.terms_for(OfferKind::Resources, tier).await;
        let read = harness
            .got(harness.content_request(&uri, resource(), Some(&terms)))
            .await
            .unwrap();
        assert_eq!(
            result(&read),
            json!({ "contents": [{ "uri": "guide://door", "text": shown }] })
        );
    }
}

#[tokio::test]
async fn what_does_not_fit_is_a_failure_in_words() {
    let harness = harness().await;
    let terms = harness
        .terms_for(OfferKind::Prompts, ColumnTier::Clear)
        .await;
    let get = async |name: &str, wanted| {
        let request = harness.content_request(&json!({ "name": name }), wanted, Some(&terms));
        let answer = harness.got(request).await.unwrap();
        assert!(answer.result_json.is_empty());
        (answer.facts.unwrap().error_kind, answer.error)
    };
    let (kind, words) = get("greet", prompt("")).await;
    assert_eq!(
        (kind.as_str(), words.as_str()),
        ("invalid_arguments", "Invalid arguments: `who` is required")
    );
    assert_eq!(get("leave", prompt("")).await.0, "unknown");
    assert_eq!(get("leave", completion("who", "")).await.0, "unknown");
    let uri = json!({ "uri": "guide://cellar" });
    let terms = harness
        .terms_for(OfferKind::Resources, ColumnTier::Clear)
        .await;
    let answer = harness
        .got(harness.content_request(&uri, resource(), Some(&terms)))
        .await
        .unwrap();
    assert_eq!(answer.facts.unwrap().error_kind, "unknown");
}

#[tokio::test]
async fn an_argument_is_completed() {
    let harness = harness().await;
    let terms = harness
        .terms_for(OfferKind::Prompts, ColumnTier::Dropped)
        .await;
    let request = harness.content_request(
        &json!({ "name": "greet" }),
        completion("tone", "w"),
        Some(&terms),
    );
    let answer = harness.got(request).await.unwrap();
    let completion = json!({ "values": ["warm"], "total": 1, "hasMore": false });
    assert_eq!(result(&answer), json!({ "completion": completion }));
}

#[tokio::test]
async fn a_changed_file_is_in_force_and_what_it_offered_before_is_not() {
    let harness = harness().await;
    let before = harness.content().await.catalogue_version;
    let terms = harness
        .terms_for(OfferKind::Resources, ColumnTier::Clear)
        .await;
    std::fs::write(&harness.file, GUIDES.replace("Knock.", "Ring.")).unwrap();
    until_true("the file is in force", async || {
        harness.content().await.catalogue_version != before
    })
    .await;
    let uri = json!({ "uri": "guide://door" });
    let refused = harness
        .got(harness.content_request(&uri, resource(), Some(&terms)))
        .await
        .unwrap_err();
    assert_eq!(
        refused.code(),
        tonic::Code::PermissionDenied,
        "decided on another text"
    );
    let terms = harness
        .terms_for(OfferKind::Resources, ColumnTier::Clear)
        .await;
    let read = harness
        .got(harness.content_request(&uri, resource(), Some(&terms)))
        .await
        .unwrap();
    assert_eq!(result(&read)["contents"][0]["text"], "Ring.");
}

#[tokio::test]
async fn a_changed_file_of_a_resource_is_in_force_too() {
    let dir = tempfile::TempDir::new().unwrap();
    let page = dir.path().join("page.md");
    std::fs::write(&page, "one").unwrap();
    let text = format!(
        "sources:\n  guides:\n    type: content\n    resources:\n      - {{ uri: \"guide://page\", name: page, file: {} }}\n",
        page.display()
    );
    let harness = Harness::with(&database::sqlite().await, &text, |_| ()).await;
    let size = async || {
        let listed = harness.content().await.resources.remove(0);
        serde_json::from_slice::<Value>(&listed.definition_json).unwrap()["size"].clone()
    };
    assert_eq!(size().await, 3);
    std::fs::write(&page, "three").unwrap();
    until_true("the file is in force", async || size().await == 5).await;
    // A file that is missing leaves the previous contents in force.
    std::fs::remove_file(&page).unwrap();
    let mut readiness = harness.runner.readiness();
    let outdated = readiness.wait_for(|readiness| matches!(readiness, Readiness::Outdated(_)));
    tokio::time::timeout(VALIDITY, outdated)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(size().await, 5);
}

#[tokio::test]
async fn a_source_that_is_off_is_answered_like_one_that_does_not_exist() {
    let harness = harness().await;
    let terms = harness
        .terms_for(OfferKind::Resources, ColumnTier::Clear)
        .await;
    harness.switch_off("guides").await;
    let uri = json!({ "uri": "guide://door" });
    let refused = harness
        .got(harness.content_request(&uri, resource(), Some(&terms)))
        .await
        .unwrap_err();
    let mut unknown = harness.content_request(&uri, resource(), Some(&terms));
    unknown.source = "nobody".to_owned();
    let unknown = harness.got(unknown).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (unknown.code(), unknown.message())
    );
    assert_eq!(wardgate_rpc::reason_of(&refused), ErrorReason::UnknownTool);
}
