//! How many poisoned definitions are flagged, and how many ordinary ones by mistake.

use serde_json::Value;
use wardgate_json::Json;

use crate::pins::pointer::Pointer;
use crate::pins::suspicion::{Finding, Scan};

const POISONED: &str = include_str!("corpus/poisoned.jsonl");
const ORDINARY: &str = include_str!("corpus/ordinary.jsonl");

/// Names of tools of other sources, as the poisoned definitions speak of them.
const FOREIGN: [&str; 4] = ["send_email", "transfer_money", "delete_all", "fetch"];

struct Scanned {
    family: String,
    name: String,
    findings: Vec<Finding>,
}

fn scanned(corpus: &str) -> Vec<Scanned> {
    let foreign = FOREIGN.map(str::to_owned);
    let entries = corpus.lines().map(|line| {
        let entry: Value = serde_json::from_str(line).unwrap();
        let tool = Json::parse(&entry["tool"].to_string()).unwrap();
        let mut scan = Scan::new(&foreign);
        scan.value(&Pointer::Root, &tool);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Scanned {
            family: text(&entry["family"]),
            name: text(&entry["tool"]["name"]),
            findings: scan.into_findings(),
        }
    });
    entries.collect()
}

/// How many of `entries` have findings, and the names of the others.
fn flagged(entries: &[&Scanned]) -> (usize, Vec<String>) {
    let (flagged, missed): (Vec<&Scanned>, Vec<&Scanned>) =
        entries.iter().partition(|entry| !entry.findings.is_empty());
    let missed = missed.iter().map(|entry| entry.name.clone());
    (flagged.len(), missed.collect())
}

#[test]
fn what_is_said_the_usual_way_is_flagged_and_ordinary_definitions_are_not() {
    let poisoned = scanned(POISONED);
    let ordinary = scanned(ORDINARY);
    let (unseen, usual): (Vec<&Scanned>, Vec<&Scanned>) =
        poisoned.iter().partition(|entry| entry.family == "unseen");
    let (found, missed) = flagged(&usual);
    println!(
        "poisoned, the usual way: {found} of {} flagged; not {missed:?}",
        usual.len()
    );
    assert!(found >= 89, "{missed:?}");

    // Written after the phrases and around them: why nothing is offered before a person approved it.
    let (found, missed) = flagged(&unseen);
    println!(
        "poisoned, in words of its own: {found} of {} flagged; not {missed:?}",
        unseen.len()
    );
    assert!(found >= 3, "{missed:?}");

    let (alarms, _) = flagged(&ordinary.iter().collect::<Vec<_>>());
    println!("ordinary: {alarms} of {} flagged", ordinary.len());
    for entry in ordinary.iter().filter(|entry| !entry.findings.is_empty()) {
        println!("  {}: {}", entry.name, entry.findings[0]);
    }
    assert_eq!(alarms, 0);
}
