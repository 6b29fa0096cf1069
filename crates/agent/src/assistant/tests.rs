//! Tests of loading `assistants.yaml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::{Assistants, Calls, MessageOpening, SecretFiles, Text, parse, resolve_opening, texts};
use crate::Error;
use crate::clients::ModelClient;
use crate::provider::{Provider, ProviderSettings};

/// Opens a provider in the same way as the service.
fn open(name: &str, settings: Value) -> Result<Arc<dyn ModelClient>, String> {
    let settings: ProviderSettings =
        serde_json::from_value(settings).map_err(|error| error.to_string())?;
    let provider = Provider::open(name, &settings, wardgate_domain::Ambient::system());
    provider
        .map(|provider| Arc::new(provider) as Arc<dyn ModelClient>)
        .map_err(|error| error.to_string())
}

fn parse_text(text: &str) -> Result<Assistants, Error> {
    let text = Text {
        path: PathBuf::from("assistants.yaml"),
        text: text.to_owned(),
    };
    parse(
        &[text],
        &BTreeMap::new(),
        &open,
        &mut SecretFiles::default(),
    )
}

fn faults(text: &str) -> String {
    parse_text(text).unwrap_err().to_string()
}

const PROVIDER: &str = "providers: { p: { type: openai, base_url: \"https://llm.example/v1\" } }\n";

fn assistant(more: &str) -> String {
    format!(
        "{PROVIDER}assistants:\n  - name: a\n    provider: p\n    model: m\n    prompts: {{ en: hello }}\n{more}"
    )
}

#[test]
fn a_fault_says_where_it_is_and_every_fault_is_said_at_once() {
    let text = "providers:\n  p: { type: openai, base_url: \"ftp://x\" }\nassistants:\n  - name: a b\n    provider: q\n    model: m\n    prompts: { en: \"{{ nobody }}\", xx: y }\n    checks: { input: [{ pattern: \"(\", refusal: no }] }\n    commands: { tag: { tool: t }, /x: { tool: t, words: [w], arguments: { a: \"{{ v }}\" } } }\n    limits: { turns: 0 }\n";
    let faults = faults(text);
    for (place, problem) in [
        ("2:", "`base_url`"),
        ("4:", "a `name` must have"),
        ("5:", "the provider `q` does not exist"),
        ("7:", "`nobody` is not supported"),
        ("7:", "`xx` is not a language"),
        ("8:", "not a regular expression"),
        ("9:", "the command `tag`"),
        ("9:", "`v` is not supported here; supported are w"),
        ("4:", "every limit"),
    ] {
        let is_said = faults.lines().any(|line| {
            line.starts_with(&format!("assistants.yaml:{place}")) && line.contains(problem)
        });
        assert!(is_said, "{place} {problem} in\n{faults}");
    }
}

#[test]
fn no_limit_of_a_turn_is_zero() {
    for limit in ["turns", "identical_calls", "tokens", "seconds", "parallel"] {
        let with = |value: u8| assistant(&format!("    limits: {{ {limit}: {value} }}\n"));
        assert!(
            faults(&with(0)).contains("every limit must be at least 1"),
            "{limit}"
        );
        assert!(parse_text(&with(1)).is_ok(), "{limit}");
    }
}

#[test]
fn a_model_that_a_missing_file_is_to_name_is_refused_with_that_file() {
    let text = assistant("").replace("model: m", "model: \"${file:model.txt}\"");
    let faults = faults(&text);
    assert!(faults.contains("`model` cannot be used"), "{faults}");
    assert!(faults.contains("model.txt"), "{faults}");
}

#[test]
fn a_key_nobody_knows_is_refused_with_its_place() {
    for (text, line, key) in [
        (assistant("    temprature: 0\n"), 7, "temprature"),
        (assistant("    limits: { turn: 1 }\n"), 7, "turn"),
        (format!("{PROVIDER}assistant: []\n"), 2, "assistant"),
        ("providers: [\n".to_owned(), 1, ""),
    ] {
        let faults = faults(&text);
        assert!(
            faults.contains(&format!("assistants.yaml:{line}:")),
            "{faults}"
        );
        assert!(faults.contains(key), "{faults}");
    }
}

#[test]
fn two_assistants_of_one_name_and_a_default_without_a_text_are_refused() {
    let twice = assistant("  - name: a\n    provider: p\n    model: m\n    prompts: { en: x }\n");
    assert!(faults(&twice).contains("two assistants are named `a`"));
    let default = assistant("").replace("{ en: hello }", "{ default: vi, en: hello }");
    assert!(faults(&default).contains("the text for the default language `vi` is missing"));
}

#[test]
fn no_value_of_a_provider_is_ever_shown() {
    let text = assistant("").replace("https://llm", "htps://canary");
    assert!(!faults(&text).contains("canary"), "{}", faults(&text));
}

fn example(name: &str) -> Assistants {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy/examples")
        .join(name)
        .join("assistants.yaml");
    let texts = texts(&path).unwrap();
    let set = BTreeMap::from([("LLM_BASE_URL".to_owned(), "http://127.0.0.1:1".to_owned())]);
    let without = parse(&texts, &BTreeMap::new(), &open, &mut SecretFiles::default()).unwrap();
    if std::env::var_os("LLM_BASE_URL").is_none() {
        assert!(
            without
                .models()
                .iter()
                .all(|model| model.missing == ["LLM_BASE_URL"]),
            "{name}"
        );
    }
    let assistants = parse(&texts, &set, &open, &mut SecretFiles::default()).unwrap();
    assert!(
        assistants
            .models()
            .iter()
            .all(|model| model.missing.is_empty())
    );
    assistants
}

#[test]
fn every_example_is_sound_with_a_model_and_without() {
    let names = |assistants: &Assistants| -> Vec<String> {
        assistants
            .models()
            .into_iter()
            .map(|model| model.name)
            .collect()
    };
    let hospital = example("hospital");
    assert_eq!(names(&hospital), ["clinic"]);
    let clinic = hospital.find(None).unwrap();
    assert_eq!(
        clinic.tools.rename["get_patient_records"],
        "get_medical_records"
    );
    assert_eq!(names(&example("edgelake")), ["edgelake"]);

    let dental = example("dental");
    assert_eq!(names(&dental), ["dental-duckduckgo", "dental-google"]);
    let google = dental.find(Some("dental-google")).unwrap();
    assert_eq!(google.calls, Calls::Text);
    let question = "Một ngày nên đánh răng bao nhiêu lần?";
    assert_eq!(google.language(question).unwrap().code(), "vi");
    let MessageOpening::Call {
        tool, arguments, ..
    } = resolve_opening(question, &google.commands, google.opening.as_ref())
    else {
        panic!("no call");
    };
    assert_eq!(tool, "google_search");
    assert_eq!(
        arguments,
        serde_json::json!({ "query": question }).to_string()
    );

    let catalogue = example("catalogue");
    let catalogue = catalogue.find(Some("catalogue")).unwrap();
    let open = |message| resolve_opening(message, &catalogue.commands, None);
    let MessageOpening::Call {
        tool, arguments, ..
    } = open("/tag water quality")
    else {
        panic!("no call");
    };
    assert_eq!(tool, "search_catalogue");
    assert_eq!(
        arguments,
        r#"{"query":"water quality","tags":["water quality"]}"#
    );
    assert_eq!(
        open("/record"),
        MessageOpening::Usage("/record <uuid>".to_owned())
    );
}

#[tokio::test]
async fn changed_files_are_taken_up_if_they_are_sound() {
    use crate::testing::{FakeGateway, caller};
    use crate::{Agent, ApprovalKey, Config};

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("assistants.yaml");
    std::fs::write(&path, assistant("")).unwrap();
    let config = Config {
        assistants: Some(path.clone()),
        reload_seconds: 1,
        ..Config::default()
    };
    let is_seen = Arc::new(tokio::sync::Notify::new());
    let seen = Arc::clone(&is_seen);
    let open = move |name: &str, settings: Value| {
        if name == "seen" {
            seen.notify_one();
        }
        open(name, settings)
    };
    let agent = Agent::with(
        &config,
        Arc::new(open),
        Arc::new(|_| Arc::new(FakeGateway::default()) as _),
        ApprovalKey::from_bytes(&[7; 32]),
        wardgate_domain::Ambient::system(),
    )
    .await
    .unwrap();
    let named = |name: &str| agent.models(&caller("a", &[]))[0].name == name;
    assert!(named("a"));
    std::fs::write(&path, assistant("").replace("name: a", "name: b c")).unwrap();
    std::fs::write(&path, assistant("").replace("name: a", "name: d")).unwrap();
    let limit = std::time::Duration::from_mins(1);
    let until_named = async |name| {
        let waiting = async {
            while !named(name) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(limit, waiting).await.unwrap();
    };
    until_named("d").await;

    let keyed = "https://llm.example/v1\", api_key: \"${file:key}\" }, seen: { type: openai, base_url: \"https://llm.example/v1\"";
    let keyed = assistant("").replace("https://llm.example/v1\"", keyed);
    std::fs::write(&path, keyed.replace("name: a", "name: e")).unwrap();
    tokio::time::timeout(limit, is_seen.notified())
        .await
        .unwrap();
    assert!(named("d"), "the file of the key is not there yet");
    std::fs::write(dir.path().join("key"), "secret\n").unwrap();
    until_named("e").await;
}

#[test]
fn a_chat_template_beside_the_file_is_learned_and_one_that_cannot_be_used_is_a_fault_with_its_place()
 {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("assistants.yaml");
    let calling = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<|go|>{{ c.function | tojson }}<|stop|>{% endfor %}{% endfor %}";
    std::fs::write(directory.path().join("calls.jinja"), calling).unwrap();
    std::fs::write(
        directory.path().join("none.jinja"),
        "{% for m in messages %}{{ m.content }}{% endfor %}",
    )
    .unwrap();
    for (name, problem) in [
        ("calls.jinja", None),
        (
            "none.jinja",
            Some("`none.jinja`: the chat template renders no tool calls"),
        ),
        (
            "gone.jinja",
            Some("the template `gone.jinja` does not exist"),
        ),
        (
            "../assistants.yaml",
            Some("the template `../assistants.yaml` does not exist"),
        ),
    ] {
        std::fs::write(&file, assistant(&format!("    template: {name}\n"))).unwrap();
        let texts = texts(&file).unwrap();
        let read = parse(&texts, &BTreeMap::new(), &open, &mut SecretFiles::default());
        match problem {
            None => assert!(read.is_ok(), "{:?}", read.err()),
            Some(problem) => {
                let faults = read.unwrap_err().to_string();
                assert!(faults.contains("assistants.yaml:7:"), "{faults}");
                assert!(faults.contains(problem), "{faults}");
            }
        }
    }
}
