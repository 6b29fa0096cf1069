//! Compares two policy sets: who gains and who loses what, per tool, row type and column class.
//!
//! A bounded search, no proof: both sets are asked the same questions, made of the roles, constants and names that stand in
//! their policies, each number, time and network with its neighbours. A difference that needs more than two roles at once, or two attributes
//! away from the rest, is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cedar_policy::{EntityTypeName, Policy};
use serde_json::{Map, Value, json};
use wardgate_domain::{
    Caller, ColumnClass, ColumnTier, Digest, OfferKind, RecordScope, Timestamp, ToolFacts,
};

use crate::arguments::{argument_name, is_local_time, path_of};
use crate::context::{CallContext, TimeZone};
use crate::policy_test::{CallerSample, sample_caller, tier_word};
use crate::schema_shape::{Record, Type};
use crate::simulator::{SimulatedAccess, SimulatedCall, Simulation, Simulator};
use crate::vocabulary::Vocabulary;

/// Questions that are asked of each set at most.
const MAX_QUESTIONS: usize = 200_000;

/// Roles of which every two are tried together.
const ROLES_IN_PAIRS: usize = 12;

/// Constants that are tried of one attribute.
const CONSTANTS: usize = 16;

/// The value of every text that nothing else is said of, so that attributes which are compared with each other agree.
const SAME: &str = "same";

/// A value that no policy names.
const OTHER: &str = "other";

/// One thing that one set gives and the other does not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessChange {
    /// The roles of the caller; none for a caller without any.
    pub roles: Vec<String>,
    /// What: for example `calls TOOL`.
    pub what: String,
    /// The caller gains it; otherwise they lose it.
    pub gains: bool,
    /// A question to which the two sets answer differently.
    pub example: String,
}

/// What a comparison found.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Each difference once, by roles.
    pub changes: Vec<AccessChange>,
    /// How many questions both sets were asked.
    pub questions: usize,
    /// The search ended before every question was asked.
    pub is_cut_short: bool,
}

/// Compares `after` with `before` over `tools`, or, where there are none, over tools made of what the policies name.
pub fn compare(before: &Simulator, after: &Simulator, tools: &[ToolFacts]) -> Comparison {
    let constants = Constants::of([before, after]);
    let made_up;
    let tools = if tools.is_empty() {
        made_up = constants.tools(&[before, after]);
        made_up.as_slice()
    } else {
        tools
    };
    let mut search = Search {
        before,
        after,
        found: BTreeMap::new(),
        questions: 0,
    };
    let role_sets = constants.role_sets();
    let attributes = declared_attributes([before, after], |it| &it.caller_attributes);
    let callers = constants.variants("principal", &attributes);
    'search: for roles in &role_sets {
        for attributes in &callers {
            search.compare_readings(roles, attributes);
            for tool in tools {
                if search.questions > MAX_QUESTIONS {
                    break 'search;
                }
                search.compare_tool(roles, attributes, tool, &constants);
            }
        }
    }
    let changes = search.found.into_iter().map(|(key, example)| {
        let ChangeKey { roles, what, gains } = key;
        AccessChange {
            roles,
            what,
            gains,
            example,
        }
    });
    let changes: Vec<_> = changes.collect();
    Comparison {
        is_cut_short: search.questions > MAX_QUESTIONS,
        questions: search.questions,
        // What one role gains, it gains beside any other.
        changes: changes
            .iter()
            .filter(|change| !changes.iter().any(|other| explains(other, change)))
            .cloned()
            .collect(),
    }
}

fn explains(part: &AccessChange, whole: &AccessChange) -> bool {
    part.roles.len() < whole.roles.len()
        && part.what == whole.what
        && part.gains == whole.gains
        && part.roles.iter().all(|role| whole.roles.contains(role))
}

/// The attributes that one of two sets declares.
fn declared_attributes(
    simulators: [&Simulator; 2],
    declared: impl Fn(&Vocabulary) -> &Record,
) -> Record {
    let mut attributes = Record::new();
    for simulator in simulators {
        attributes.extend(declared(&simulator.set().vocabulary).clone());
    }
    attributes
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ChangeKey {
    roles: Vec<String>,
    what: String,
    gains: bool,
}

struct Search<'a> {
    before: &'a Simulator,
    after: &'a Simulator,
    found: BTreeMap<ChangeKey, String>,
    questions: usize,
}

/// Whether a caller may read, or do, what no tool gives.
type ReadingQuestion = fn(&Simulator, &Caller) -> bool;

impl Search<'_> {
    fn note(&mut self, roles: &[String], what: String, gains: bool, example: &dyn Fn() -> String) {
        let roles = roles.to_vec();
        let key = ChangeKey { roles, what, gains };
        self.found.entry(key).or_insert_with(example);
    }

    fn compare_readings(&mut self, roles: &[String], attributes: &Map<String, Value>) {
        let Ok(caller) = sample_caller(&caller_sample(roles, attributes)) else {
            return;
        };
        let questions: [(&str, ReadingQuestion); 4] = [
            ("reads the record of everybody", |it, caller| {
                it.record(caller, RecordScope::All).decision
            }),
            ("reads the record of their own", |it, caller| {
                it.record(caller, RecordScope::Own).decision
            }),
            ("manages the record", |it, caller| {
                it.record(caller, RecordScope::Manage).decision
            }),
            ("revokes access", |it, caller| {
                it.revocation(caller).decision
            }),
        ];
        for (what, question) in questions {
            self.questions += 1;
            let has = question(self.after, &caller);
            if question(self.before, &caller) != has {
                let example = || example_of(attributes, &[]);
                self.note(roles, what.to_owned(), has, &example);
            }
        }
    }

    fn compare_tool(
        &mut self,
        roles: &[String],
        attributes: &Map<String, Value>,
        tool: &ToolFacts,
        constants: &Constants,
    ) {
        let Ok(caller) = sample_caller(&caller_sample(roles, attributes)) else {
            return;
        };
        for arguments in &constants.arguments {
            for context in &constants.contexts {
                let call = SimulatedCall {
                    caller: caller.clone(),
                    tool: tool.clone(),
                    arguments: Value::from(arguments.clone()).to_string().into_bytes(),
                    context: context.clone(),
                };
                let (Ok(had), Ok(has)) = (self.before.call(&call), self.after.call(&call)) else {
                    continue;
                };
                self.questions += 1;
                let example = || {
                    let mut more = Vec::new();
                    if !arguments.is_empty() {
                        more.push(format!("arguments {}", Value::from(arguments.clone())));
                    }
                    if let Some(client_ip) = context.client_ip {
                        more.push(format!("client_ip {client_ip}"));
                    }
                    if constants.looks_at_time {
                        more.push(format!("time {}", context.time));
                    }
                    example_of(attributes, &more)
                };
                self.compare_access(roles, tool, (&had, &has), &example);
                let allowed = [&had, &has].map(|it| it.access.is_possible());
                if allowed.contains(&true) {
                    self.compare_rows(roles, tool, (&had, &has), constants, &example);
                    self.compare_columns(roles, tool, (&had, &has), &example);
                }
                if !(had.depends_on_context || has.depends_on_context) {
                    return;
                }
            }
        }
    }

    fn compare_access(
        &mut self,
        roles: &[String],
        tool: &ToolFacts,
        (had, has): (&Simulation, &Simulation),
        example: &dyn Fn() -> String,
    ) {
        if had.access == has.access {
            self.compare_approvers(roles, tool, (had, has), example);
            return;
        }
        let verb = match tool.kind {
            OfferKind::Tool => "calls",
            OfferKind::Connect => "connects to",
            OfferKind::Resources => "reads resources of",
            OfferKind::Prompts => "gets prompts of",
        };
        let possible = [had, has].map(|it| it.access.is_possible());
        let allowed = [had, has].map(|it| it.access == SimulatedAccess::Allowed);
        let visible = [had, has].map(|it| it.access != SimulatedAccess::Hidden);
        if possible == [true; 2] {
            let what = format!("{verb} {} without an approval", tool.name);
            self.note(roles, what, allowed[1], example);
        } else if allowed == [false; 2] && possible[0] != possible[1] {
            let what = format!("{verb} {} with an approval", tool.name);
            self.note(roles, what, possible[1], example);
        } else if allowed[0] != allowed[1] {
            let what = format!("{verb} {}", tool.name);
            self.note(roles, what, allowed[1], example);
        } else if visible[0] != visible[1] {
            let what = format!("sees {}", tool.name);
            self.note(roles, what, visible[1], example);
        }
    }

    fn compare_approvers(
        &mut self,
        roles: &[String],
        tool: &ToolFacts,
        (had, has): (&Simulation, &Simulation),
        example: &dyn Fn() -> String,
    ) {
        let (Some(before), Some(after)) = (&had.approvers, &has.approvers) else {
            return;
        };
        for role in before.roles.symmetric_difference(&after.roles) {
            let what = format!("has calls of {} approved by {role}", tool.name);
            self.note(roles, what, after.roles.contains(role), example);
        }
        if before.caller != after.caller {
            let what = format!("approves their own calls of {}", tool.name);
            self.note(roles, what, after.caller, example);
        }
    }

    fn compare_rows(
        &mut self,
        roles: &[String],
        tool: &ToolFacts,
        (had, has): (&Simulation, &Simulation),
        constants: &Constants,
        example: &dyn Fn() -> String,
    ) {
        let Some(entity) = &tool.entity else {
            return;
        };
        let declared = [self.before, self.after]
            .into_iter()
            .find_map(|it| it.set().vocabulary.rows.get(entity));
        let Some(declared) = declared else {
            return;
        };
        for row in constants.variants("resource", &declared.attributes) {
            self.questions += 1;
            let admits = |simulator: &Simulator, simulation: &Simulation| {
                let decided = simulator.row(simulation, &row);
                decided.is_ok_and(|it| it.decision)
            };
            let (before, after) = (admits(self.before, had), admits(self.after, has));
            if before != after {
                let example = || format!("{}, row {}", example(), Value::from(row.clone()));
                let what = format!("reads rows of {entity} by {}", tool.name);
                self.note(roles, what, after, &example);
            }
        }
    }

    fn compare_columns(
        &mut self,
        roles: &[String],
        tool: &ToolFacts,
        (had, has): (&Simulation, &Simulation),
        example: &dyn Fn() -> String,
    ) {
        let tiers = |simulator: &Simulator, simulation: &Simulation| {
            simulator.columns(simulation).unwrap_or_default()
        };
        let (before, after) = (tiers(self.before, had), tiers(self.after, has));
        for class in &tool.classes {
            self.questions += 1;
            let tier = |tiers: &BTreeMap<ColumnClass, crate::PartDecision<ColumnTier>>| {
                tiers
                    .get(class)
                    .map_or(ColumnTier::Dropped, |it| it.decision)
            };
            let (before, after) = (tier(&before), tier(&after));
            if before != after {
                let (from, to) = (tier_word(before), tier_word(after));
                let what = format!("sees {class} of {} {to} instead of {from}", tool.name);
                self.note(roles, what, after < before, example);
            }
        }
    }
}

fn caller_sample(roles: &[String], attributes: &Map<String, Value>) -> CallerSample {
    CallerSample {
        subject: SAME.to_owned(),
        roles: roles.to_vec(),
        tenant: SAME.to_owned(),
        attributes: attributes.clone(),
    }
}

fn example_of(attributes: &Map<String, Value>, more: &[String]) -> String {
    let mut parts = Vec::new();
    if !attributes.is_empty() {
        parts.push(format!("attributes {}", Value::from(attributes.clone())));
    }
    parts.extend_from_slice(more);
    if parts.is_empty() {
        "always".to_owned()
    } else {
        parts.join(", ")
    }
}

/// What the policies of both sets name.
#[derive(Debug, Default)]
struct Constants {
    roles: BTreeSet<String>,
    tags: BTreeSet<String>,
    tools: BTreeSet<String>,
    classes: BTreeSet<String>,
    /// By variable and attribute, as `principal.ward`.
    values: BTreeMap<String, Vec<Value>>,
    /// The arguments to try.
    arguments: Vec<Map<String, Value>>,
    /// Instants, in milliseconds since 1970, times of the day, in milliseconds since midnight, and networks.
    instants: BTreeSet<i64>,
    times_of_day: BTreeSet<i64>,
    networks: BTreeSet<String>,
    /// A policy looks at the time.
    looks_at_time: bool,
    /// The times and addresses to try, all times in UTC.
    contexts: Vec<CallContext>,
}

impl Constants {
    fn of(simulators: [&Simulator; 2]) -> Self {
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
            let context = |time| CallContext {
                time,
                time_zone: TimeZone::default(),
                client_ip,
            };
            let contexts: Vec<_> = found.times().map(context).collect();
            found.contexts.extend(contexts);
        }
        found
    }

    /// An unknown address; where policies look at it also one of this machine, one of the documentation (RFC 5737), and the
    /// ends of each network with their neighbours.
    fn addresses(&self) -> BTreeSet<Option<IpAddr>> {
        let mut addresses = BTreeSet::from([None]);
        if self.values.contains_key("context.client_ip") {
            addresses.extend([[127, 0, 0, 1], [192, 0, 2, 1]].map(|it| Some(it.into())));
            let networks = self.networks.iter();
            addresses.extend(networks.flat_map(|it| near_addresses(it)).map(Some));
        }
        addresses
    }

    /// A Wednesday's noon; where policies look at the time also the times of the day, dates and instants that they name, each
    /// with its neighbours; and each day of that week where they look at the weekday.
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

    /// No role, each role by itself, and every two where there are few.
    fn role_sets(&self) -> Vec<Vec<String>> {
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

    /// The attributes to try of a caller or a row, whose types are `declared`.
    fn variants(&self, variable: &str, declared: &Record) -> Vec<Map<String, Value>> {
        let names = declared.iter();
        self.assignments(variable, names.map(|(name, it)| (name, Some(&it.r#type))))
    }

    /// Nothing at all; everything the same; and each of its values by itself, the others staying the same.
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
            let mut values: Vec<_> = constants.filter_map(|value| fitting(value, kind)).collect();
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

    /// Tools made of what the policies name: each tool, a tool of each tag, and one of each type of row.
    fn tools(&self, simulators: &[&Simulator]) -> Vec<ToolFacts> {
        let classes: Vec<ColumnClass> = self
            .classes
            .iter()
            .filter_map(|class| class.parse().ok())
            .collect();
        let tool = |name: String, tags: Vec<String>, entity: Option<String>| {
            Some(ToolFacts {
                kind: OfferKind::Tool,
                definition_digest: Digest::of(name.as_bytes()),
                name: name.parse().ok()?,
                read_only: true,
                tags,
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
        named.chain(tagged).chain(of_rows).flatten().collect()
    }

    /// The argument of a constructor of an extension type.
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

    /// Values that stand in one operation with an attribute or an argument, what is read of the context, and all times and
    /// networks.
    fn collect(&mut self, json: &Value) {
        match json {
            Value::Object(members) => {
                for (operator, operands) in members {
                    if operands["left"]["Var"] == "context"
                        && let Some(read) = path_of(operands.get("attr")).next()
                    {
                        self.values.entry(format!("context.{read}")).or_default();
                    }
                    if let Some(literal) = operands[0]["Value"].as_str() {
                        self.collect_literal(operator, literal);
                    }
                    if let Some(name) = argument_name(operator, operands) {
                        let name = format!("arguments.{name}");
                        self.values.entry(name).or_default();
                    }
                    // Of a function of an extension type the operands are a list.
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

/// The ends of a network and the addresses next to it.
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

/// `principal.ward`, `context.local.minute`, or the name of an argument.
fn attribute_name(expression: &Value) -> Option<String> {
    let mut operations = expression.as_object()?.iter();
    let argument = operations.find_map(|(operator, operands)| argument_name(operator, operands));
    if let Some(name) = argument {
        return Some(format!("arguments.{name}"));
    }
    let get = expression.get(".")?;
    if is_local_time(&get["left"]) {
        return Some(format!("context.local.{}", get["attr"].as_str()?));
    }
    let variable = get["left"]["Var"].as_str()?;
    Some(format!("{variable}.{}", get["attr"].as_str()?))
}

/// The constants of an operand; of a number its neighbours too.
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

/// A decimal and its neighbours, as numbers of JSON.
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

/// A text that a pattern matches.
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

/// A value in the type that is declared, where it has a form in it; the tag of an argument is its JSON text.
fn fitting(value: &Value, kind: Option<&Type>) -> Option<Value> {
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
