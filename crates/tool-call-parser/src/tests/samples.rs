//! Samples of each family, in the notation of its models.

use serde::Deserialize;
use serde_json::Value;

use super::{Family, Outcome, stream};

#[derive(Debug, Deserialize)]
pub(super) struct Sample {
    about: String,
    pub(super) text: String,
    calls: Vec<ExpectedCalls>,
    left: String,
}

#[derive(Debug, Deserialize)]
struct ExpectedCalls {
    name: String,
    arguments: Value,
}

/// Returns all samples, each with the name of its family.
pub(super) fn samples() -> Vec<(String, Sample)> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/samples");
    let mut samples = Vec::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let family = path.file_stem().unwrap().to_str().unwrap().to_owned();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let sample = serde_json::from_str(line);
            samples.push((family.clone(), sample.unwrap()));
        }
    }
    samples
}

#[test]
fn every_family_is_read_by_its_name_and_without_it() {
    let mut wrong = Vec::new();
    for (name, sample) in samples() {
        let calls = sample.calls.into_iter().map(|it| (it.name, it.arguments));
        let expected = Outcome {
            calls: calls.collect(),
            text: sample.left,
        };
        for family in [name.parse().unwrap(), Family::UNKNOWN] {
            let outcome = stream(family, [sample.text.as_str()]);
            if outcome != expected {
                let about = &sample.about;
                wrong.push(format!(
                    "{name} as {family}, {about}:\n  {outcome:?}\n  {expected:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_family_has_samples_of_calls() {
    let samples = samples();
    for family in Family::names() {
        if family == Family::UNKNOWN.to_string() {
            continue;
        }
        let calling = samples
            .iter()
            .filter(|(name, sample)| {
                let named: Family = name.parse().unwrap();
                named.to_string() == family && !sample.calls.is_empty()
            })
            .count();
        assert!(calling >= 2, "{family}: {calling}");
    }
}

#[test]
fn a_family_is_known_by_the_names_of_its_models() {
    for (model, family) in [
        ("unknown", "unknown"),
        ("Qwen/Qwen2.5-7B-Instruct", "hermes"),
        ("qwen3_coder", "qwen-coder"),
        ("Qwen3-Coder-480B", "qwen-coder"),
        ("llama3_json", "llama"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama"),
        ("deepseek_v31", "deepseek"),
        ("kimi_k2", "kimi"),
        ("glm45", "glm"),
        ("command-r7b", "cohere"),
        ("gpt-oss:20b", "harmony"),
        ("phi4_mini_json", "phi"),
    ] {
        let parsed: Family = model.parse().unwrap();
        assert_eq!(parsed.to_string(), family, "{model}");
    }
    let unknown = "gpt-9".parse::<Family>().unwrap_err().to_string();
    assert!(unknown.contains("unknown, json, qwen-coder"), "{unknown}");
}
