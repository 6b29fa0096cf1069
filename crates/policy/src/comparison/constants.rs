//! Extraction of the constants in the policies of two sets, from which a comparison builds its callers, arguments,
//! times, addresses and tools.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cedar_policy::{EntityTypeName, Policy};
use serde_json::{Map, Value, json};
use wardgate_domain::{ColumnClass, Digest, OfferKind, TimeZone, Timestamp, ToolFacts};

use crate::arguments::{argument_name, is_local_time, path_of};
use crate::context::CallContext;
use crate::history::{CallCounts, is_history};
use crate::schema_shape::{Record, Type};
use crate::simulator::Simulator;
use crate::vocabulary::Vocabulary;

/// Maximum number of roles for which every pair is tried.
const ROLES_IN_PAIRS: usize = 12;

/// Maximum number of constants that are tried for one attribute.
const CONSTANTS: usize = 16;

/// The default value of every text, so that attributes that are compared with each other are equal.
pub(super) const SAME: &str = "same";

/// The prefix of the names of counters of earlier calls.
const COUNTERS: &str = "context.history.";

/// A text that does not appear in any policy.
const OTHER: &str = "other";

/// Returns the attributes that either of the two sets declares.
pub(super) fn declared_attributes(
    simulators: [&Simulator; 2],
    declared: impl Fn(&Vocabulary) -> &Record,
) -> Record {
    let mut attributes = Record::new();
    for simulator in simulators {
        attributes.extend(declared(&simulator.set().vocabulary).clone());
    }
    attributes
}

/// The constants in the policies of both sets.
#[derive(Debug, Default)]
pub(super) struct PolicyConstants {
    roles: BTreeSet<String>,
    tags: BTreeSet<String>,
    tools: BTreeSet<String>,
    classes: BTreeSet<String>,
    /// The constants that are compared with each attribute, by variable and attribute, for example `principal.ward`.
    values: BTreeMap<String, Vec<Value>>,
    /// The arguments to try.
    pub(super) arguments: Vec<Map<String, Value>>,
    /// Instants in milliseconds since 1970, times of day in milliseconds since midnight, and networks.
    instants: BTreeSet<i64>,
    times_of_day: BTreeSet<i64>,
    networks: BTreeSet<String>,
    /// Whether a policy reads `resource.read_only`.
    looks_at_read_only: bool,
    /// Whether a policy reads the time.
    pub(super) looks_at_time: bool,
    /// The times and addresses to try. All times are in UTC.
    pub(super) contexts: Vec<CallContext>,
}

impl PolicyConstants {
    pub(super) fn from_simulators(simulators: [&Simulator; 2]) -> Self {
        let mut found = Self::default();
        for simulator in simulators {
            let vocabulary = &simulator.set().vocabulary;
            for policy in simulator.set().policies_of_questions() {
                let literals = policy.entity_literals();
                let of_type = |name: &EntityTypeName| {
                    let of_type = literals.iter().filter(|it| it.type_name() == name);
                    let ids = of_type.map(|it| it.id().unescaped().to_owned());
                    ids.collect::<Vec<_>>()
                };
                found.roles.extend(of_type(&vocabulary.role));
                found.tags.extend(of_type(&vocabulary.tag));
                found.tools.extend(of_type(&vocabulary.tool));
                found.classes.extend(of_type(&vocabulary.class));
                found.collect_values(policy);
            }
        }
        let names: BTreeSet<_> = found
            .values
            .keys()
            .filter_map(|name| name.strip_prefix("arguments."))
            .map(str::to_owned)
            .collect();
        let declared = declared_attributes(simulators, |it| &it.argument_types);
        let names = names
            .iter()
            .map(|name| (name, declared.get(name).map(|attribute| &attribute.r#type)));
        found.arguments = found.assignments("arguments", names);
        found.looks_at_time = ["context.time", "context.local"]
            .iter()
            .any(|name| found.values.contains_key(*name));
        for client_ip in found.addresses() {
            for counts in found.histories() {
                let context = |time| CallContext {
                    time,
                    time_zone: TimeZone::default(),
                    client_ip,
                    counts: counts.clone(),
                };
                let contexts: Vec<_> = found.times().map(context).collect();
                found.contexts.extend(contexts);
            }
        }
        found
    }

    /// Returns the addresses to try: an unknown address and, if policies read the address, also a loopback address, an
    /// address for documentation (RFC 5737), and the first and last address of each network with their neighbours.
    fn addresses(&self) -> BTreeSet<Option<IpAddr>> {
        let mut addresses = BTreeSet::from([None]);
        if self.values.contains_key("context.client_ip") {
            addresses.extend([[127, 0, 0, 1], [192, 0, 2, 1]].map(|it| Some(it.into())));
            let networks = self.networks.iter();
            addresses.extend(networks.flat_map(|it| near_addresses(it)).map(Some));
        }
        addresses
    }

    /// Returns the counts of earlier calls to try: no calls and, if policies read counters, the numbers in the policies
    /// with their neighbours, for one counter at a time.
    fn histories(&self) -> Vec<CallCounts> {
        let counters = self.values.iter().filter_map(|(name, values)| {
            let counter = name.strip_prefix(COUNTERS)?;
            Some(values.iter().filter_map(move |value| {
                Some(CallCounts::from([(counter.to_owned(), value.as_u64()?)]))
            }))
        });
        let mut histories = vec![CallCounts::new()];
        histories.extend(counters.flatten());
        histories
    }

    /// Returns the times to try: noon on a Wednesday and, if policies read the time, also the times of day, dates and
    /// instants in the policies, each with its neighbours. If policies read the weekday, each day of that week is
    /// tried.
    fn times(&self) -> impl Iterator<Item = Timestamp> {
        let named = |name: &str| self.values.get(name).into_iter().flatten();
        let minutes = named("context.local.minute").filter_map(Value::as_i64);
        let mut times_of_day: BTreeSet<_> = minutes
            .map(|minute| minute.saturating_mul(MINUTE))
            .collect();
        times_of_day.extend(
            self.times_of_day
                .iter()
                .flat_map(|it| [it - 1, *it, it + 1]),
        );
        times_of_day.insert(DAY / 2);
        times_of_day.retain(|time| (0..DAY).contains(time));
        let dates = named("context.local.date").filter_map(|date| date.as_str()?.parse().ok());
        let dates = dates.filter_map(|date: jiff::civil::Date| {
            let midnight = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
            Some(midnight.timestamp().as_millisecond())
        });
        let is_by_weekday = self.values.contains_key("context.local.weekday");
        let days = if is_by_weekday { 0..7 } else { 2..3 };
        let days = days.map(|day| MONDAY + day * DAY);
        let days: BTreeSet<_> = days.chain(dates).collect();
        let mut instants = BTreeSet::from([MONDAY + 2 * DAY + DAY / 2]);
        if self.looks_at_time {
            instants.extend(
                days.iter()
                    .flat_map(|day| times_of_day.iter().map(move |it| day + it)),
            );
            instants.extend(self.instants.iter().flat_map(|it| [it - 1, *it, it + 1]));
        }
        let micros = instants.into_iter().map(|it| it.saturating_mul(1_000));
        micros.map(Timestamp::from_micros)
    }

    /// Returns the sets of roles to try: no role, each role by itself and, if there are few roles, every pair.
    pub(super) fn role_sets(&self) -> Vec<Vec<String>> {
        let mut sets = vec![Vec::new()];
        sets.extend(self.roles.iter().map(|role| vec![role.clone()]));
        if self.roles.len() <= ROLES_IN_PAIRS {
            for first in &self.roles {
                let later = self.roles.iter().filter(|it| *it > first);
                sets.extend(later.map(|second| vec![first.clone(), second.clone()]));
            }
        }
        sets
    }

    /// Returns the sets of attributes to try for a caller or a row. `declared` has the types of the attributes.
    pub(super) fn variants(&self, variable: &str, declared: &Record) -> Vec<Map<String, Value>> {
        let names = declared.iter();
        self.assignments(variable, names.map(|(name, it)| (name, Some(&it.r#type))))
    }

    /// Returns the assignments to try: no attribute at all, all attributes with their default, and each other value of
    /// each attribute while the rest have their default.
    fn assignments<'n>(
        &self,
        variable: &str,
        names: impl Iterator<Item = (&'n String, Option<&'n Type>)>,
    ) -> Vec<Map<String, Value>> {
        let names: Vec<_> = names.collect();
        let same: Map<String, Value> = names
            .iter()
            .map(|(name, kind)| ((*name).clone(), usual(*kind)))
            .collect();
        let mut assignments = vec![Map::new()];
        if !same.is_empty() {
            assignments.push(same.clone());
        }
        for (name, kind) in names {
            let constants = self.values.get(&format!("{variable}.{name}"));
            let constants = constants.into_iter().flatten();
            let mut values: Vec<_> = constants
                .filter_map(|value| convert_constant(value, kind))
                .collect();
            values.extend(unusual(kind));
            values.push(Value::Null);
            for value in values {
                let mut assignment = same.clone();
                if value.is_null() {
                    assignment.remove(name);
                } else {
                    assignment.insert(name.clone(), value);
                }
                if !assignments.contains(&assignment) {
                    assignments.push(assignment);
                }
            }
        }
        assignments
    }

    /// Returns tools that are made up from the names in the policies: each named tool, one tool for each tag, and one
    /// for each row type. If there is none, or if policies read `resource.read_only`, there is also a tool that no policy names.
    /// In the latter case, each tool is returned in two forms, of which one may write.
    pub(super) fn tools(&self, simulators: &[&Simulator]) -> Vec<ToolFacts> {
        let classes: Vec<ColumnClass> = self
            .classes
            .iter()
            .filter_map(|class| class.parse().ok())
            .collect();
        let tool = |name: String, tags: Vec<String>, entity: Option<String>| {
            Some(ToolFacts {
                kind: OfferKind::Tool,
                definition_digest: Digest::compute(name.as_bytes()),
                name: name.parse().ok()?,
                read_only: true,
                tags: tags.into(),
                entity,
                classes: classes.clone(),
                argument_defaults: BTreeMap::new(),
            })
        };
        let named = self.tools.iter();
        let named = named.map(|name| tool(name.clone(), Vec::new(), None));
        let tagged = self.tags.iter();
        let tagged =
            tagged.map(|tag| tool(format!("a-tool-tagged-{tag}"), vec![tag.clone()], None));
        let rows: BTreeSet<_> = simulators
            .iter()
            .flat_map(|it| it.set().row_types().map(str::to_owned))
            .collect();
        let tags: Vec<_> = self.tags.iter().cloned().collect();
        let of_rows = rows.into_iter().map(|entity| {
            let name = format!("a-tool-of-{entity}");
            tool(name, tags.clone(), Some(entity))
        });
        let mut tools: Vec<_> = named.chain(tagged).chain(of_rows).flatten().collect();
        if tools.is_empty() || self.looks_at_read_only {
            // Policies about every tool concern it.
            tools.extend(tool("a-tool".to_owned(), Vec::new(), None));
        }
        if self.looks_at_read_only {
            let writing = tools.iter().filter_map(|tool| self.writing_form(tool));
            let writing: Vec<_> = writing.collect();
            tools.extend(writing);
        }
        tools
    }

    /// Returns the form of a made-up tool that may write. It has another name unless policies name the tool.
    fn writing_form(&self, tool: &ToolFacts) -> Option<ToolFacts> {
        let name = if self.tools.contains(tool.name.as_str()) {
            tool.name.clone()
        } else {
            format!("{}-that-may-write", tool.name).parse().ok()?
        };
        Some(ToolFacts {
            definition_digest: Digest::compute(format!("{name}, may write").as_bytes()),
            name,
            read_only: false,
            ..tool.clone()
        })
    }

    /// Collects the literal of an extension type from the argument of its constructor.
    fn collect_literal(&mut self, constructor: &str, literal: &str) {
        match constructor {
            "ip" => {
                self.networks.insert(literal.to_owned());
            }
            "datetime" => {
                let midnight = || format!("{literal}T00:00:00Z").parse();
                let instant = literal.parse().or_else(|_| midnight());
                let instant = instant.map(jiff::Timestamp::as_millisecond);
                self.instants.extend(instant);
            }
            "duration" => {
                let span = literal.parse::<jiff::Span>();
                let days = jiff::SpanRelativeTo::days_are_24_hours();
                let length = span.and_then(|span| span.to_duration(days));
                let length = length.map(|it| i64::try_from(it.as_millis()).unwrap_or_default());
                self.times_of_day.extend(length);
            }
            _ => {}
        }
    }

    fn collect_values(&mut self, policy: &Policy) {
        if let Ok(json) = policy.to_json() {
            self.collect(&json);
        }
    }

    /// Collects the values that are compared with an attribute or an argument, the attributes of the context that are
    /// read, and all times and networks.
    fn collect(&mut self, json: &Value) {
        match json {
            Value::Object(members) => {
                for (operator, operands) in members {
                    if operands["left"]["Var"] == "context"
                        && let Some(read) = path_of(operands.get("attr")).next()
                    {
                        self.values.entry(format!("context.{read}")).or_default();
                    }
                    if operands["left"]["Var"] == "resource" && operands["attr"] == "read_only" {
                        self.looks_at_read_only = true;
                    }
                    if let Some(literal) = operands[0]["Value"].as_str() {
                        self.collect_literal(operator, literal);
                    }
                    if let Some(name) = argument_name(operator, operands) {
                        let name = format!("arguments.{name}");
                        self.values.entry(name).or_default();
                    }
                    // The operands of an extension function are a list.
                    let (left, right) = match operands.as_array().map(Vec::as_slice) {
                        Some([left, right]) => (left, right),
                        _ => (&operands["left"], &operands["right"]),
                    };
                    for (attribute, literal) in [(left, right), (right, left)] {
                        let literals = literals(operator, literal);
                        if let Some(name) = attribute_name(attribute) {
                            let values = self.values.entry(name).or_default();
                            for value in literals {
                                if values.len() < CONSTANTS && !values.contains(&value) {
                                    values.push(value);
                                }
                            }
                        }
                    }
                    if let ("like", Some(name)) = (operator.as_str(), attribute_name(left)) {
                        let text = matching_text(&operands["pattern"]);
                        self.values.entry(name).or_default().push(text.into());
                    }
                    self.collect(operands);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            _ => {}
        }
    }
}

/// A day and a minute in milliseconds, and the Monday of the week that is tried, 2026-01-05.
const DAY: i64 = 86_400_000;
const MINUTE: i64 = 60_000;
const MONDAY: i64 = 1_767_571_200_000;

/// Returns the first and last address of a network, and the addresses next to them.
fn near_addresses(network: &str) -> Vec<IpAddr> {
    let (address, prefix) = network.split_once('/').unwrap_or((network, "128"));
    let (Ok(address), Ok(prefix)) = (address.parse::<IpAddr>(), prefix.parse::<u32>()) else {
        return Vec::new();
    };
    let (bits, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let hosts = width - prefix.min(width);
    let hosts = 1_u128.checked_shl(hosts).map_or(u128::MAX, |size| size - 1);
    let (first, last) = (bits & !hosts, bits | hosts);
    let ends = [
        first.checked_sub(1),
        Some(first),
        Some(last),
        last.checked_add(1),
    ];
    let address = |bits: u128| match address {
        IpAddr::V4(_) => u32::try_from(bits)
            .ok()
            .map(|it| Ipv4Addr::from_bits(it).into()),
        IpAddr::V6(_) => Some(Ipv6Addr::from_bits(bits).into()),
    };
    ends.into_iter().flatten().filter_map(address).collect()
}

/// Returns the name of the attribute that an expression reads, such as `principal.ward`, `context.local.minute` or
/// `arguments.NAME`.
fn attribute_name(expression: &Value) -> Option<String> {
    let mut operations = expression.as_object()?.iter();
    let argument = operations.find_map(|(operator, operands)| argument_name(operator, operands));
    if let Some(name) = argument {
        return Some(format!("arguments.{name}"));
    }
    let get = expression.get(".")?;
    if is_history(&get["left"]) {
        return Some(format!("{COUNTERS}{}", get["attr"].as_str()?));
    }
    if is_local_time(&get["left"]) {
        return Some(format!("context.local.{}", get["attr"].as_str()?));
    }
    let variable = get["left"]["Var"].as_str()?;
    Some(format!("{variable}.{}", get["attr"].as_str()?))
}

/// Returns the constants of an operand. A number is returned with its neighbours.
fn literals(operator: &str, expression: &Value) -> Vec<Value> {
    if let Some(items) = expression["Set"].as_array() {
        let items = items.iter().flat_map(|item| literals("==", item));
        return match operator {
            "containsAll" | "containsAny" => items.map(|item| json!([item])).collect(),
            _ => items.collect(),
        };
    }
    if let Some(decimal) = expression["decimal"][0]["Value"].as_str() {
        return near_decimals(decimal);
    }
    match &expression["Value"] {
        Value::Number(number) => {
            let number = number.as_i64().unwrap_or_default();
            let near = [-1, 0, 1].map(|step| number.saturating_add(step));
            near.map(Value::from).into()
        }
        Value::String(text) if operator == "contains" => vec![json!([text])],
        value @ (Value::String(_) | Value::Bool(_)) => vec![value.clone()],
        _ => Vec::new(),
    }
}

/// Returns a decimal and its neighbours as JSON numbers.
fn near_decimals(decimal: &str) -> Vec<Value> {
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    let Ok(units) = format!("{whole}{fraction:0<4}").parse::<i64>() else {
        return Vec::new();
    };
    let number = |step| {
        let units = units.saturating_add(step);
        let sign = if units < 0 { "-" } else { "" };
        let (whole, fraction) = (units.unsigned_abs() / 10_000, units.unsigned_abs() % 10_000);
        serde_json::from_str(&format!("{sign}{whole}.{fraction:04}"))
    };
    [-1, 0, 1].map(number).into_iter().flatten().collect()
}

/// Returns a text that the pattern matches.
fn matching_text(pattern: &Value) -> String {
    let parts = pattern.as_array().into_iter().flatten();
    parts.filter_map(|part| part["Literal"].as_str()).collect()
}

fn usual(kind: Option<&Type>) -> Value {
    match kind {
        Some(Type::Integer | Type::Decimal) => json!(0),
        Some(Type::Boolean) => json!(false),
        Some(Type::Set(element)) => json!([usual(Some(element))]),
        Some(Type::Record(members)) => members
            .iter()
            .map(|(name, member)| (name.clone(), usual(Some(&member.r#type))))
            .collect(),
        _ => json!(SAME),
    }
}

fn unusual(kind: Option<&Type>) -> Vec<Value> {
    match kind {
        Some(Type::Integer) => vec![json!(i64::MIN), json!(i64::MAX)],
        Some(Type::Decimal) => vec![
            json!(-900_000_000_000_000_i64),
            json!(900_000_000_000_000_i64),
        ],
        Some(Type::Boolean) => vec![json!(true)],
        Some(Type::Set(_)) => vec![json!([])],
        Some(Type::Record(_)) => Vec::new(),
        _ => vec![json!(OTHER)],
    }
}

/// Converts a constant to the declared type. A text is parsed as JSON if that gives the type, because the tag of an
/// argument is its JSON text. Returns `None` if the value does not fit.
fn convert_constant(value: &Value, kind: Option<&Type>) -> Option<Value> {
    if fits(value, kind) {
        return Some(value.clone());
    }
    let parsed: Value = serde_json::from_str(value.as_str()?).ok()?;
    fits(&parsed, kind).then_some(parsed)
}

fn fits(value: &Value, kind: Option<&Type>) -> bool {
    match kind {
        Some(Type::Integer) => value.is_i64(),
        Some(Type::Decimal) => value.is_number(),
        Some(Type::Boolean) => value.is_boolean(),
        Some(Type::Set(_)) => value.is_array(),
        Some(Type::Record(_)) => value.is_object(),
        Some(_) => value.is_string(),
        None => true,
    }
}
