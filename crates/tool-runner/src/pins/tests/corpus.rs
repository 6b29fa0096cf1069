//! How many poisoned definitions are flagged, and how many ordinary ones by mistake.

use serde_json::Value;

use crate::pins::json::Json;
use crate::pins::pointer::Pointer;
use crate::pins::suspicion::{Finding, Scan};

const POISONED: &str = include_str!("corpus/poisoned.jsonl");
const ORDINARY: &str = include_str!("corpus/ordinary.jsonl");

/// Names of tools of other sources, as the poisoned definitions speak of them.
const FOREIGN: [&str; 4] = ["send_email", "transfer_money", "delete_all", "fetch"];

/// Family, name and findings of each definition.
fn scanned(corpus: &str) -> Vec<(String, String, Vec<Finding>)> {
    let foreign = FOREIGN.map(str::to_owned);
    let entries = corpus.lines().map(|line| {
        let entry: Value = serde_json::from_str(line).unwrap();
        let tool = Json::parse(&entry["tool"].to_string()).unwrap();
        let mut scan = Scan::new(&foreign);
        scan.value(&Pointer::Root, &tool);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (
            text(&entry["family"]),
            text(&entry["tool"]["name"]),
            scan.into_findings(),
        )
    });
    entries.collect()
}

#[test]
fn most_poisoned_definitions_are_flagged_and_hardly_an_ordinary_one() {
    let poisoned = scanned(POISONED);
    let ordinary = scanned(ORDINARY);
    let missed: Vec<_> = poisoned
        .iter()
        .filter(|(.., findings)| findings.is_empty())
        .map(|(family, name, _)| format!("{family}/{name}"))
        .collect();
    let alarms: Vec<_> = ordinary
        .iter()
        .filter(|(.., findings)| !findings.is_empty())
        .map(|(family, name, findings)| format!("{family}/{name}: {}", findings[0]))
        .collect();
    println!(
        "poisoned: {} of {} flagged; missed {missed:?}",
        poisoned.len() - missed.len(),
        poisoned.len()
    );
    println!(
        "ordinary: {} of {} flagged: {alarms:#?}",
        alarms.len(),
        ordinary.len()
    );
    for (family, name, findings) in &poisoned {
        let kinds: Vec<_> = findings
            .iter()
            .map(|finding| finding.kind.as_str())
            .collect();
        println!("{family}/{name}: {kinds:?}");
    }
    assert!(missed.len() <= 3, "{missed:?}");
    assert!(alarms.len() <= 3, "{alarms:?}");
}
