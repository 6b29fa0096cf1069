//! Counters of a caller's earlier calls, which policies can read.
//!
//! A policy directory declares its counters as attributes of `entity History`, and policies about tool calls read them
//! as `context.history.NAME`. The audit service counts the calls from the record; this module only queries it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use cedar_policy::RestrictedExpression;
use serde_json::{Map, Value};
use wardgate_domain::{CallReference, TimeZone, Timestamp, ToolName, duration};
use wardgate_rpc::client::{AuditClient, CallCountQuery, CallError, CallSelection};

use crate::fault::DecisionFault;

/// The attribute of the context that contains the counters.
pub(crate) const HISTORY: &str = "history";

/// Maximum number of counters of one directory, which is the maximum of a query to the audit service.
pub(crate) const MAX_COUNTERS: usize = CallCountQuery::MAX_SELECTIONS;

/// Maximum time window of a counter.
const LONGEST_WINDOW: Duration = Duration::from_hours(31 * 24);

/// How long after midnight a decision still counts the calls of the previous day. Gateways record the times of calls, and their
/// clocks may be behind that of this service: calls that they record as of the previous day would otherwise not be counted.
const DAY_LEEWAY: Duration = Duration::from_secs(5);

/// Maximum time that a query of the counts may take.
const COUNT_LIMIT: Duration = Duration::from_millis(500);

/// A counter of the caller's calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallCounter {
    /// The canonical names of the tools whose calls are counted. If both this and `tags` are empty, calls of all tools are
    /// counted.
    pub(crate) tools: Vec<ToolName>,
    /// The tags of the tools whose calls are counted. A tool needs one of them.
    pub(crate) tags: Vec<String>,
    /// The period whose calls are counted.
    pub(crate) period: CountedPeriod,
    /// Whether only calls of the same conversation are counted.
    pub(crate) is_of_conversation: bool,
    /// Whether only calls that released health information are counted.
    pub(crate) phi: bool,
}

/// The period before a decision whose calls are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CountedPeriod {
    /// A duration.
    Duration(Duration),
    /// The calendar day of the decision in a time zone; `None` means the time zone of the policy service.
    Day(Option<TimeZone>),
}

impl CountedPeriod {
    /// Returns the start of the period that ends at `now`. `time_zone` is that of the policy service. The result is `None` if
    /// `now` is outside the range of the calendar.
    fn start(&self, now: Timestamp, time_zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Duration(duration) => Some(now.minus(*duration)),
            Self::Day(own) => {
                let time_zone = own.as_ref().unwrap_or(time_zone);
                time_zone.start_of_day(now.minus(DAY_LEEWAY))
            }
        }
    }
}

/// The declared counters of a directory, by name.
pub(crate) type CallCounters = BTreeMap<String, CallCounter>;

/// The values of counters, by name. A counter that is missing has the value 0.
pub type CallCounts = BTreeMap<String, u64>;

/// A fault in the declaration of a counter, with its fix.
#[derive(Debug)]
pub(crate) struct CounterFault {
    pub(crate) problem: String,
    pub(crate) fix: &'static str,
}

/// A problem of a declaration, and its fix.
type DeclarationProblem = (&'static str, &'static str);

/// The annotations that a counter may have.
const ANNOTATIONS: [&str; 6] = ["tools", "tags", "within", "time_zone", "of", "released"];

/// The value of `@within` for the calendar day.
const DAY: &str = "day";

/// The form of a declaration, which faults suggest as a fix.
const FORM: &str = "write `entity History { @tools(\"TOOL, TOOL\") @within(\"24h\") NAME: Long };`";

impl CallCounter {
    /// Parses a counter from an attribute of `entity History` in Cedar's JSON format.
    pub(crate) fn parse(name: &str, attribute: &Value) -> Result<Self, CounterFault> {
        Self::parse_attribute(attribute).map_err(|(problem, fix)| CounterFault {
            problem: format!("`{name}` of `entity History` {problem}"),
            fix,
        })
    }

    fn parse_attribute(attribute: &Value) -> Result<Self, DeclarationProblem> {
        if attribute["required"] == false {
            return Err(("is optional, but a counter is always present", FORM));
        }
        let is_long = [&attribute["type"], &attribute["name"]]
            .into_iter()
            .any(|r#type| r#type == "Long" || r#type == "__cedar::Long");
        if !is_long {
            return Err(("is not a `Long`, which a counter must be", FORM));
        }
        let none = Map::new();
        let annotations = attribute["annotations"].as_object().unwrap_or(&none);
        let is_known = |key: &String| ANNOTATIONS.contains(&key.as_str());
        if !annotations.keys().all(is_known) {
            return Err(("has an annotation that is not valid for a counter", FORM));
        }
        let annotations = CounterAnnotations(annotations);
        let (tools, tags) = (annotations.tools()?, annotations.tags()?);
        if !tools.is_empty() && !tags.is_empty() {
            return Err((
                "counts tools both by name and by tag",
                "write `@tools` or `@tags`, not both, or declare two counters",
            ));
        }
        Ok(Self {
            tools,
            tags,
            is_of_conversation: annotations.is_of_conversation()?,
            phi: annotations.phi()?,
            period: annotations.period()?,
        })
    }
}

/// The annotations of a counter.
struct CounterAnnotations<'a>(&'a Map<String, Value>);

impl<'a> CounterAnnotations<'a> {
    /// Returns the value of an annotation, which is empty if it was written without a value, or `None` if it is absent.
    fn text(&self, key: &str) -> Option<&'a str> {
        let value = self.0.get(key)?;
        Some(value.as_str().unwrap_or_default())
    }

    /// Returns the names in the value of an annotation.
    fn names(&self, key: &str) -> impl Iterator<Item = &'a str> {
        let names = self.text(key).into_iter();
        names.flat_map(|names| names.split(',')).map(str::trim)
    }

    fn tools(&self) -> Result<Vec<ToolName>, DeclarationProblem> {
        let tools: Result<Vec<ToolName>, _> = self.names("tools").map(str::parse).collect();
        let Ok(tools) = tools else {
            return Err((
                "does not specify the tools that it counts",
                "write the names of the tools, not their aliases: `@tools(\"TOOL, TOOL\")`",
            ));
        };
        if tools.len() > CallSelection::MAX_TOOLS {
            return Err((
                "counts more than sixteen tools",
                "give the tools a tag in tools.yaml and count it with `@tags(\"TAG\")`, or split the counter",
            ));
        }
        Ok(tools)
    }

    fn tags(&self) -> Result<Vec<String>, DeclarationProblem> {
        let tags: Vec<_> = self.names("tags").map(str::to_owned).collect();
        if tags.iter().any(String::is_empty) {
            return Err((
                "does not specify the tags of the tools that it counts",
                "write the tags as in tools.yaml: `@tags(\"TAG, TAG\")`",
            ));
        }
        if tags.len() > CallSelection::MAX_TAGS {
            return Err((
                "counts more than sixteen tags",
                "give the tools a common tag in tools.yaml",
            ));
        }
        Ok(tags)
    }

    fn is_of_conversation(&self) -> Result<bool, DeclarationProblem> {
        match self.text("of") {
            None | Some("caller") => Ok(false),
            Some("conversation") => Ok(true),
            Some(_) => Err((
                "does not specify whose calls it counts",
                "write `@of(\"caller\")` or `@of(\"conversation\")`",
            )),
        }
    }

    fn phi(&self) -> Result<bool, DeclarationProblem> {
        match self.text("released") {
            None => Ok(false),
            Some("phi") => Ok(true),
            Some(_) => Err((
                "counts calls by a property that audit records do not contain",
                "write `@released(\"phi\")`, for health information",
            )),
        }
    }

    fn period(&self) -> Result<CountedPeriod, DeclarationProblem> {
        let within = self.text("within").unwrap_or_default();
        let time_zone = self.text("time_zone");
        if within == DAY {
            let time_zone = time_zone.map(str::parse::<TimeZone>).transpose();
            return time_zone.map(CountedPeriod::Day).map_err(|_| {
                (
                    "has a time zone that does not exist",
                    "write a name of the IANA database: `@time_zone(\"Europe/Berlin\")`",
                )
            });
        }
        let fits = |within: &Duration| !within.is_zero() && *within <= LONGEST_WINDOW;
        let Some(within) = duration::parse(within).filter(fits) else {
            return Err((
                "does not specify its time window",
                "write `@within(\"day\")` for the calendar day, or a duration from `1s` to `744h` (31 days): \
                 `@within(\"24h\")`",
            ));
        };
        if time_zone.is_some() {
            return Err((
                "has a time zone, although its time window is a duration",
                "write `@within(\"day\")` for the calendar day, or delete `@time_zone`",
            ));
        }
        Ok(CountedPeriod::Duration(within))
    }
}

fn is_context(expression: &Value) -> bool {
    expression["Var"] == "context"
}

/// Returns whether an expression, in Cedar's JSON format, is `context.history`.
pub(crate) fn is_history(expression: &Value) -> bool {
    let get = &expression["."];
    is_context(&get["left"]) && get["attr"] == HISTORY
}

/// Collects the counters of `declared` that an expression, in Cedar's JSON format, reads.
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
            // The expression uses the history as a whole, or the whole context.
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

/// Returns the value of `context.history`.
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
        .map_err(|_| DecisionFault::Refused("the counts of earlier calls"))
}

/// The reason why the number of earlier calls is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HistoryFault {
    /// The intent of the call is not on record yet.
    #[error("the intent of the call is not recorded")]
    NoIntent,
    /// The client did not state the conversation of the call.
    #[error(
        "the client did not send the conversation (`_meta` dev.wardgate/conversation), whose calls the policies count"
    )]
    NoConversation,
    /// The time of the decision has no calendar day.
    #[error("the time of the decision is outside the range of the calendar")]
    NoDay,
    /// No audit service is configured.
    #[error("`policy.links.audit` is not set, and policies use the history of calls")]
    NoLink,
    /// The audit service did not return the counts.
    #[error("the audit service did not return the number of earlier calls: {0}")]
    NotCounted(#[from] CallError),
    /// The policies changed between counting and the decision.
    #[error("the policies changed while calls were counted")]
    OtherPolicies,
}

/// The connection to the audit service, which counts earlier calls. Without a connection, calls cannot be counted.
#[derive(Clone, Default)]
pub struct CallHistory(Arc<ArcSwapOption<AuditClient>>);

impl fmt::Debug for CallHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallHistory")
    }
}

impl CallHistory {
    /// Connects to `audit`, which is used for all further counts.
    pub fn connect(&self, audit: AuditClient) {
        self.0.store(Some(Arc::new(audit)));
    }

    /// Drops the connection, so that the audit service can shut down.
    pub fn disconnect(&self) {
        self.0.store(None);
    }

    /// Returns the values of `counters` for the caller `subject`, who makes `call`. `time_zone` is that of the policy service.
    pub(crate) async fn count(
        &self,
        counters: &CallCounters,
        time_zone: &TimeZone,
        subject: &str,
        call: CallReference,
        moment: CountedUntil,
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
        let selections = counters.values().map(|counter| {
            Some(CallSelection {
                tools: counter.tools.clone(),
                tags: counter.tags.clone(),
                since: counter.period.start(now, time_zone)?,
                conversation: conversation.filter(|_| counter.is_of_conversation),
                phi: counter.phi,
            })
        });
        let selections: Option<Vec<_>> = selections.collect();
        let query = CallCountQuery {
            subject: subject.to_owned(),
            call_id,
            selections: selections.ok_or(HistoryFault::NoDay)?,
            until,
        };
        let counts = audit.count_calls(query, COUNT_LIMIT).await?;
        Ok(counters.keys().cloned().zip(counts).collect())
    }
}

/// The information about earlier calls that is available to a decision.
#[derive(Debug)]
pub(crate) struct EarlierCalls {
    /// The call that is about to be made; `None` if no call is about to run, for example when a stored result is read.
    /// In that case, policies see no earlier calls.
    pub(crate) call: Option<CallReference>,
    /// The counters that were counted, as the policies in force at that time define them; `None` if nothing was counted.
    pub(crate) counters: Option<Arc<CallCounters>>,
    /// The values of these counters.
    pub(crate) counts: Result<CallCounts, HistoryFault>,
}

impl EarlierCalls {
    /// Creates the value for a decision about `call` that depends on no counter.
    pub(crate) fn without_counters(call: Option<CallReference>) -> Self {
        Self {
            call,
            counters: None,
            counts: Ok(CallCounts::new()),
        }
    }

    /// Creates the value for a decision after which no call runs.
    pub(crate) fn without_call() -> Self {
        Self::without_counters(None)
    }
}

/// The calls that are counted, by time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CountedUntil {
    /// The calls whose intent was recorded before this call, as of now.
    Now(Timestamp),
    /// The calls that were on record at that time.
    Then(Timestamp),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counters(names: &[&str]) -> CallCounters {
        let counter = CallCounter {
            tools: vec!["t".parse().unwrap()],
            tags: Vec::new(),
            period: CountedPeriod::Duration(Duration::from_hours(24)),
            is_of_conversation: false,
            phi: false,
        };
        let counters = names.iter().map(|name| (name.to_string(), counter.clone()));
        counters.collect()
    }

    fn list_counters(policy: &str) -> Vec<String> {
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
            // An expression that could read any counter counts as reading all of them.
            ("context.history == context.history", vec!["a", "b"]),
            ("context has history", vec!["a", "b"]),
            ("[context].contains(context)", vec!["a", "b"]),
        ] {
            assert_eq!(list_counters(&policy(condition)), expected, "{condition}");
        }
    }

    #[test]
    fn a_counter_says_which_tools_it_counts_and_how_far_back() {
        let attribute = |annotations: Value| json!({ "type": "EntityOrCommon", "name": "Long", "annotations": annotations });
        let counter = attribute(json!({ "tools": "a, b", "within": "24h" }));
        let counter = CallCounter::parse("c", &counter).unwrap();
        let day = CountedPeriod::Duration(Duration::from_hours(24));
        assert_eq!(counter.period, day);
        assert_eq!(counter.tools.len(), 2);
        assert!(!counter.is_of_conversation && !counter.phi);
        let of_conversation = json!({ "within": "1h", "of": "conversation", "released": "phi" });
        let counter = CallCounter::parse("c", &attribute(of_conversation)).unwrap();
        assert!(counter.tools.is_empty() && counter.is_of_conversation && counter.phi);
        let by_tag =
            json!({ "tags": "export, bulk mail", "within": "day", "time_zone": "Asia/Tokyo" });
        let counter = CallCounter::parse("c", &attribute(by_tag)).unwrap();
        assert_eq!(counter.tags, ["export", "bulk mail"]);
        let tokyo = "Asia/Tokyo".parse().unwrap();
        assert_eq!(counter.period, CountedPeriod::Day(Some(tokyo)));
        let of_day = CallCounter::parse("c", &attribute(json!({ "within": "day" }))).unwrap();
        assert_eq!(of_day.period, CountedPeriod::Day(None));
        let seventeen = ["t"; 17].join(",");
        for (annotations, problem) in [
            (json!({ "tools": "", "within": "24h" }), "specify the tools"),
            (
                json!({ "tools": "a b", "within": "24h" }),
                "specify the tools",
            ),
            (json!({ "tags": "a,", "within": "24h" }), "specify the tags"),
            (
                json!({ "tags": seventeen, "within": "24h" }),
                "more than sixteen tags",
            ),
            (
                json!({ "tools": seventeen, "within": "24h" }),
                "more than sixteen tools",
            ),
            (
                json!({ "tools": "a", "tags": "b", "within": "24h" }),
                "both by name and by tag",
            ),
            (
                json!({ "within": "day", "time_zone": "Europe/Atlantis" }),
                "time zone that does not exist",
            ),
            (
                json!({ "within": "24h", "time_zone": "Europe/Berlin" }),
                "although its time window is a duration",
            ),
            (json!({ "tools": "a" }), "time window"),
            (json!({ "tools": "a", "within": "0s" }), "time window"),
            (json!({ "tools": "a", "within": "745h" }), "time window"),
            (json!({ "within": "24h", "of": "x" }), "whose calls"),
            (json!({ "within": "24h", "released": "x" }), "by a property"),
            (json!({ "within": "24h", "tag": "x" }), "annotation"),
        ] {
            let fault = CallCounter::parse("c", &attribute(annotations)).unwrap_err();
            assert!(fault.problem.contains(problem), "{fault:?}");
        }
        let text = json!({ "type": "EntityOrCommon", "name": "String" });
        assert!(CallCounter::parse("c", &text).is_err());
    }
}
