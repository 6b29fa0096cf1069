//! Earlier calls of a caller, as counters that policies look at.
//!
//! A directory declares its counters as attributes of `entity History`, and policies about calls of tools read them as
//! `context.history.NAME`. What they count is on record at the audit service; nothing is counted here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use cedar_policy::RestrictedExpression;
use serde_json::Value;
use wardgate_domain::{CallReference, Timestamp, ToolName, duration};
use wardgate_rpc::client::{AuditClient, CallCountQuery, CallError, CallSelection};

use crate::fault::DecisionFault;

/// The attribute of the context that has the counters.
pub(crate) const HISTORY: &str = "history";

/// Counters of one directory: no more than the audit service takes.
pub(crate) const MAX_COUNTERS: usize = CallCountQuery::MAX_SELECTIONS;

/// How far back a counter looks.
const LONGEST_WINDOW: Duration = Duration::from_hours(31 * 24);

/// How long a count may take.
const COUNT_LIMIT: Duration = Duration::from_millis(500);

/// What a counter counts: calls of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallCounter {
    /// Of these tools, by canonical name; none: of any.
    pub(crate) tools: Vec<ToolName>,
    /// Within this time before the decision.
    pub(crate) within: Duration,
    /// Of the conversation that the call is part of alone.
    pub(crate) is_of_conversation: bool,
    /// Only those that released health information.
    pub(crate) phi: bool,
}

/// The counters that a directory declares, by name.
pub(crate) type CallCounters = BTreeMap<String, CallCounter>;

/// What counters say, by name. One that is missing says 0.
pub type CallCounts = BTreeMap<String, u64>;

/// What is wrong with a counter, and what to do about it.
#[derive(Debug)]
pub(crate) struct CounterFault {
    pub(crate) problem: String,
    pub(crate) fix: &'static str,
}

/// The annotations of a counter.
const ANNOTATIONS: [&str; 4] = ["tools", "within", "of", "released"];

/// The form of a declaration, for faults.
const FORM: &str = "write `entity History { @tools(\"TOOL, TOOL\") @within(\"24h\") NAME: Long };`";

impl CallCounter {
    /// The counter that an attribute of `entity History` declares, in Cedar's JSON format.
    pub(crate) fn parse(name: &str, attribute: &Value) -> Result<Self, CounterFault> {
        let fault = |problem: &str, fix| {
            let problem = format!("`{name}` of `entity History` {problem}");
            Err(CounterFault { problem, fix })
        };
        if attribute["required"] == false {
            return fault("is optional, and a counter is always there", FORM);
        }
        let is_long = [&attribute["type"], &attribute["name"]]
            .into_iter()
            .any(|r#type| r#type == "Long" || r#type == "__cedar::Long");
        if !is_long {
            return fault("is no `Long`, and a counter is nothing else", FORM);
        }
        let none = serde_json::Map::new();
        let annotations = attribute["annotations"].as_object().unwrap_or(&none);
        let is_known = |key: &String| ANNOTATIONS.contains(&key.as_str());
        if !annotations.keys().all(is_known) {
            return fault("has an annotation that says nothing of a counter", FORM);
        }
        let text = |key: &str| annotations.get(key).and_then(Value::as_str);
        let names = annotations
            .get("tools")
            .map(|_| text("tools").unwrap_or_default());
        let names = names
            .into_iter()
            .flat_map(|names| names.split(','))
            .map(str::trim);
        let tools: Result<Vec<ToolName>, _> = names.map(str::parse).collect();
        let Ok(tools) = tools else {
            return fault(
                "does not name the tools that it counts",
                "write the tools' own names, no aliases: `@tools(\"TOOL, TOOL\")`",
            );
        };
        let is_of_conversation = match (annotations.get("of"), text("of")) {
            (None, _) | (_, Some("caller")) => false,
            (_, Some("conversation")) => true,
            _ => {
                return fault(
                    "does not say whose calls it counts",
                    "write `@of(\"caller\")` or `@of(\"conversation\")`",
                );
            }
        };
        let phi = match (annotations.get("released"), text("released")) {
            (None, _) => false,
            (_, Some("phi")) => true,
            _ => {
                return fault(
                    "counts calls by what the record does not have",
                    "write `@released(\"phi\")`, for health information",
                );
            }
        };
        if tools.len() > CallSelection::MAX_TOOLS {
            return fault("counts more than sixteen tools", "make it several counters");
        }
        let within = text("within").and_then(duration::parse);
        let fits = |within: &Duration| !within.is_zero() && *within <= LONGEST_WINDOW;
        let Some(within) = within.filter(fits) else {
            return fault(
                "does not say how far back it counts",
                "write a time of `1s` to `744h`, which is 31 days: `@within(\"24h\")`",
            );
        };
        Ok(Self {
            tools,
            within,
            is_of_conversation,
            phi,
        })
    }
}

fn is_context(expression: &Value) -> bool {
    expression["Var"] == "context"
}

/// Whether an expression, in Cedar's JSON format, is the history of calls.
pub(crate) fn is_history(expression: &Value) -> bool {
    let get = &expression["."];
    is_context(&get["left"]) && get["attr"] == HISTORY
}

/// The counters of `declared` that an expression reads, in Cedar's JSON format.
pub(crate) fn collect_counters(
    json: &Value,
    declared: &CallCounters,
    found: &mut BTreeSet<String>,
) {
    match json {
        Value::Object(members) => match (members.get("left"), members.get("attr")) {
            (Some(left), Some(Value::String(name))) if is_history(left) => {
                found.insert(name.clone());
            }
            (Some(left), Some(name)) if is_context(left) && name != HISTORY => {}
            // The history as a whole, or all of the context.
            (Some(left), Some(_)) if is_context(left) => found.extend(declared.keys().cloned()),
            _ if is_context(json) => found.extend(declared.keys().cloned()),
            _ => {
                for member in members.values() {
                    collect_counters(member, declared, found);
                }
            }
        },
        Value::Array(items) => {
            for item in items {
                collect_counters(item, declared, found);
            }
        }
        _ => {}
    }
}

/// The counters as policies read them.
pub(crate) fn history(
    declared: &CallCounters,
    counts: &CallCounts,
) -> Result<RestrictedExpression, DecisionFault> {
    let counters = declared.keys().map(|name| {
        let count = counts.get(name).copied().unwrap_or(0);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        (name.clone(), RestrictedExpression::new_long(count))
    });
    RestrictedExpression::new_record(counters)
        .map_err(|_| DecisionFault::Refused("the counters of earlier calls"))
}

/// Why it is not known how many calls there were.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HistoryFault {
    /// The call that is decided has no intent on record yet.
    #[error("the intent of the call is not on record")]
    NoIntent,
    /// The call is part of no conversation that is known.
    #[error(
        "the client names no conversation (`_meta` dev.wardgate/conversation), and policies count calls of one"
    )]
    NoConversation,
    /// There is no audit service to ask.
    #[error(
        "`policy.links.audit` does not say where the audit service is, and policies look at the history of calls"
    )]
    NoLink,
    /// The audit service does not say.
    #[error("the audit service does not say how many calls there were: {0}")]
    NotCounted(#[from] CallError),
    /// The policies that were in force when it was counted are not those that decide.
    #[error("the policies changed while calls were counted")]
    OtherPolicies,
}

/// Where calls are counted: at the audit service, as soon as it is linked to.
#[derive(Clone, Default)]
pub struct CallHistory(Arc<ArcSwapOption<AuditClient>>);

impl fmt::Debug for CallHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallHistory")
    }
}

impl CallHistory {
    /// From now on counts at `audit`.
    pub fn connect(&self, audit: AuditClient) {
        self.0.store(Some(Arc::new(audit)));
    }

    /// From now on counts nowhere, so that the audit service can end.
    pub fn disconnect(&self) {
        self.0.store(None);
    }

    /// What `counters` say of the caller `subject`, who makes `call`.
    pub(crate) async fn count(
        &self,
        counters: &CallCounters,
        subject: &str,
        (call, moment): (CallReference, CountedUntil),
    ) -> Result<CallCounts, HistoryFault> {
        let audit = self.0.load_full().ok_or(HistoryFault::NoLink)?;
        let (now, call_id, until) = match moment {
            CountedUntil::Now(_) if !call.has_intent => return Err(HistoryFault::NoIntent),
            CountedUntil::Now(now) => (now, Some(call.call_id), None),
            CountedUntil::Then(then) => (then, None, Some(then)),
        };
        let conversation = call.conversation;
        if conversation.is_none() && counters.values().any(|it| it.is_of_conversation) {
            return Err(HistoryFault::NoConversation);
        }
        let selections = counters.values().map(|counter| CallSelection {
            tools: counter.tools.clone(),
            since: now.minus(counter.within),
            conversation: conversation.filter(|_| counter.is_of_conversation),
            phi: counter.phi,
        });
        let query = CallCountQuery {
            subject: subject.to_owned(),
            call_id,
            selections: selections.collect(),
            until,
        };
        let counts = audit.count_calls(query, COUNT_LIMIT).await?;
        Ok(counters.keys().cloned().zip(counts).collect())
    }
}

/// What is known of earlier calls when something is decided.
#[derive(Debug)]
pub(crate) struct EarlierCalls {
    /// The call that is about to be made. None where nothing is about to run, such as when a stored result is read: then policies
    /// see no earlier calls.
    pub(crate) call: Option<CallReference>,
    /// What the counters say that the decision depends on.
    pub(crate) counts: Result<CallCounts, HistoryFault>,
}

impl EarlierCalls {
    /// Where nothing is about to run.
    pub(crate) fn disregarded() -> Self {
        Self {
            call: None,
            counts: Ok(CallCounts::new()),
        }
    }
}

/// Until when calls are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CountedUntil {
    /// Those before the call, by their intents, as of now.
    Now(Timestamp),
    /// Those that were on record at that time.
    Then(Timestamp),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counters(names: &[&str]) -> CallCounters {
        let counter = CallCounter {
            tools: vec!["t".parse().unwrap()],
            within: Duration::from_hours(24),
            is_of_conversation: false,
            phi: false,
        };
        let counters = names.iter().map(|name| (name.to_string(), counter.clone()));
        counters.collect()
    }

    fn read(policy: &str) -> Vec<String> {
        let policy = cedar_policy::Policy::parse(None, policy).unwrap();
        let mut found = BTreeSet::new();
        collect_counters(
            &policy.to_json().unwrap(),
            &counters(&["a", "b"]),
            &mut found,
        );
        found.into_iter().collect()
    }

    #[test]
    fn the_counters_that_a_policy_reads_are_those_that_it_names() {
        let policy = |condition: &str| {
            format!("permit (principal, action, resource) when {{ {condition} }};")
        };
        for (condition, expected) in [
            ("context.history.a < 3", vec!["a"]),
            (
                "context.history.a < 3 && context.history.b > 1",
                vec!["a", "b"],
            ),
            ("context.time < datetime(\"2027-01-01\")", vec![]),
            ("context.arguments.hasTag(\"history\")", vec![]),
            ("context has client_ip", vec![]),
            // Whatever could read one of them counts as reading all.
            ("context.history == context.history", vec!["a", "b"]),
            ("context has history", vec!["a", "b"]),
            ("[context].contains(context)", vec!["a", "b"]),
        ] {
            assert_eq!(read(&policy(condition)), expected, "{condition}");
        }
    }

    #[test]
    fn a_counter_says_which_tools_it_counts_and_how_far_back() {
        let attribute = |annotations: Value| json!({ "type": "EntityOrCommon", "name": "Long", "annotations": annotations });
        let counter = attribute(json!({ "tools": "a, b", "within": "24h" }));
        let counter = CallCounter::parse("c", &counter).unwrap();
        assert_eq!(counter.within, Duration::from_hours(24));
        assert_eq!(counter.tools.len(), 2);
        assert!(!counter.is_of_conversation && !counter.phi);
        let of_conversation = json!({ "within": "1h", "of": "conversation", "released": "phi" });
        let counter = CallCounter::parse("c", &attribute(of_conversation)).unwrap();
        assert!(counter.tools.is_empty() && counter.is_of_conversation && counter.phi);
        for (annotations, problem) in [
            (json!({ "tools": "", "within": "24h" }), "name the tools"),
            (json!({ "tools": "a b", "within": "24h" }), "name the tools"),
            (json!({ "tools": "a" }), "how far back"),
            (json!({ "tools": "a", "within": "0s" }), "how far back"),
            (json!({ "tools": "a", "within": "745h" }), "how far back"),
            (json!({ "within": "24h", "of": "x" }), "whose calls"),
            (json!({ "within": "24h", "released": "x" }), "by what"),
            (json!({ "within": "24h", "tag": "x" }), "annotation"),
        ] {
            let fault = CallCounter::parse("c", &attribute(annotations)).unwrap_err();
            assert!(fault.problem.contains(problem), "{fault:?}");
        }
        let text = json!({ "type": "EntityOrCommon", "name": "String" });
        assert!(CallCounter::parse("c", &text).is_err());
    }
}
