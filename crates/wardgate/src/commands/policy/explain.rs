//! `wardgate policy explain`: explains to authors of policies why a call is allowed or denied.

use futures::StreamExt;
use serde_json::{Map, Value, json};
use wardgate_domain::{Ambient, OfferKind, mark_invisible};
use wardgate_policy::{
    CallContext, CallerSample, Explanation, PartDecision, SimulatedCall, Simulation, Simulator,
    parse_client_ip, parse_time, sample_caller, tier_word,
};
use wardgate_rpc::client::{AuditFilter, QueriedRecord};

use super::replay::{RecordedOutcome, kind_of};
use crate::Failure;
use crate::cli::{PolicyExplain, RecordAccess};
use crate::commands::audit::OpenRecord;
use crate::commands::output::print_document;

pub(super) async fn run(arguments: &PolicyExplain) -> Result<(), Failure> {
    let simulator = super::simulator(&arguments.directory)?;
    let recorded = match &arguments.call {
        Some(id) => Some(recorded_call(&arguments.access, id).await?),
        None => None,
    };
    let call = asked_call(arguments, &simulator, recorded.as_ref())?;
    let simulation = simulator.call(&call)?;
    let explanation = simulator.explain(&call, &simulation)?;
    let row = match &arguments.row {
        None => None,
        Some(row) => {
            let row: Map<String, Value> =
                serde_json::from_str(row).map_err(|error| format!("--row: {error}"))?;
            Some(simulator.row(&simulation, &row)?)
        }
    };
    let answer = Answer {
        simulator: &simulator,
        simulation,
        explanation,
        row,
        recorded,
    };
    print_document(
        arguments.output.format(),
        &answer.as_json().to_string(),
        || mark_invisible(&answer.as_text()).into_owned(),
    )?;
    Ok(())
}

/// Returns the recorded outcome of a call, which is read as `audit query --call-id` reads it.
async fn recorded_call(access: &RecordAccess, id: &str) -> Result<RecordedOutcome, Failure> {
    let filter = AuditFilter {
        call_id: Some(id.to_owned()),
        newest_first: true,
        ..AuditFilter::default()
    };
    let mut records = OpenRecord::open(access).await?.query(filter).await?;
    while let Some(found) = records.next().await {
        match found? {
            QueriedRecord::Intact(stored) => {
                if let Ok(outcome) = serde_json::from_slice(&stored.record) {
                    return Ok(outcome);
                }
            }
            QueriedRecord::Damaged(damage) => eprintln!("{damage}"),
        }
    }
    Err(format!("no outcome of the call {id} is recorded").into())
}

/// Returns the call that the options describe, with values of the recorded call where there is one.
fn asked_call(
    arguments: &PolicyExplain,
    simulator: &Simulator,
    recorded: Option<&RecordedOutcome>,
) -> Result<SimulatedCall, Failure> {
    let mut attributes = Map::new();
    for (name, value) in &arguments.claims {
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value.as_str()));
        attributes.insert(name.clone(), value);
    }
    let sample = match recorded {
        Some(outcome) => CallerSample {
            subject: outcome.caller.subject.clone(),
            roles: outcome.caller.roles.clone(),
            tenant: outcome.caller.tenant.clone(),
            attributes,
        },
        None => CallerSample {
            subject: arguments.sub.clone().unwrap_or_default(),
            roles: arguments.roles.clone(),
            tenant: String::new(),
            attributes,
        },
    };
    let (kind, name) = match recorded {
        Some(outcome) => (kind_of(&outcome.method), outcome.tool.as_str()),
        None => (
            Some(OfferKind::Tool),
            arguments.tool.as_deref().unwrap_or_default(),
        ),
    };
    let kind = kind.ok_or("the recorded call used no tool, resource or prompt")?;
    let offers = super::offers(arguments.tools.as_deref(), &arguments.directory)?;
    let tool = offers
        .into_iter()
        .find(|offer| offer.kind == kind && offer.name.as_str() == name)
        .ok_or_else(|| {
            format!("the catalogue contains no `{name}`; specify the catalogue with --tools")
        })?;
    let time_zone = &arguments.time_zone;
    let counts = arguments.history.iter().cloned().collect();
    let counts = simulator
        .check_counts(&counts)
        .map_err(|problem| format!("--history: {problem}"))?;
    let context = match (recorded, &arguments.time) {
        (Some(outcome), _) => CallContext {
            counts,
            ..outcome.context(time_zone)?
        },
        (None, time) => CallContext {
            time: match time {
                Some(time) => {
                    parse_time(time, time_zone).map_err(|problem| format!("--time: {problem}"))?
                }
                None => Ambient::system().now(),
            },
            time_zone: time_zone.clone(),
            client_ip: parse_client_ip(arguments.client_ip.as_deref().unwrap_or_default())?,
            counts,
        },
    };
    Ok(SimulatedCall {
        caller: sample_caller(&sample)?,
        tool,
        arguments: arguments.args.clone().into_bytes(),
        context,
    })
}

struct Answer<'a> {
    simulator: &'a Simulator,
    simulation: Simulation,
    explanation: Explanation,
    row: Option<PartDecision<bool>>,
    recorded: Option<RecordedOutcome>,
}

impl Answer<'_> {
    /// Describes how the recorded decision differs from that of these policies, and possible reasons.
    fn compared_with_record(&self) -> Option<String> {
        let recorded = self.recorded.as_ref()?;
        let decision = recorded.decision.as_ref()?;
        let same_policies = decision.policy_hash == self.simulator.set().hash().to_string();
        let was = match recorded.access() {
            Some(access) => access.as_str(),
            None => "refused, but not by a policy",
        };
        let by = match decision.policies.as_slice() {
            [] => "no policy".to_owned(),
            ids => ids.join(", "),
        };
        let by_same = if same_policies {
            "these policies"
        } else {
            "policies other than these"
        };
        let bundle = decision.bundle.as_ref();
        let bundle = bundle.map_or_else(String::new, |it| {
            format!(", in bundle {} (sha256:{})", it.version, it.digest)
        });
        Some(format!(
            "recorded: {was} by {by}, of {by_same}{bundle}; the arguments, the caller's attributes and the counts of earlier calls are \
             not recorded, so the values of --args, --claim and --history are used"
        ))
    }

    fn as_text(&self) -> String {
        let Simulation {
            access,
            reason,
            policies,
            ..
        } = &self.simulation;
        let mut text = String::new();
        if let Some(compared) = self.compared_with_record() {
            text += &format!("{compared}\n\n");
        }
        text += access.as_str();
        if let Some(approvers) = &self.simulation.approvers {
            text += &format!(" of {approvers}");
        }
        if let Some(reason) = reason {
            text += &format!(" ({})", reason.as_str());
        }
        if policies.is_empty() {
            text += ": no policy permits it\n";
        } else {
            text += &format!(" by {}\n", policies.join(", "));
        }
        for policy in &self.explanation.policies {
            let location = policy.location.as_ref().map_or_else(String::new, |at| {
                format!("{}:{}: ", at.file.display(), at.line)
            });
            let effect = if policy.forbids { "forbid" } else { "permit" };
            let applies = match (policy.decided, policy.unmet()) {
                (true, _) => "decided",
                (false, 0) => "applies",
                (false, _) => "does not apply",
            };
            text += &format!("\n{location}{effect} {}: {applies}\n", policy.id);
            for condition in &policy.conditions {
                let holds = if condition.holds { "holds" } else { "FAILS" };
                text += &format!("  {holds}  {}\n", condition.text);
            }
        }
        if !self.explanation.facts.is_empty() {
            text += "\nfacts\n";
            for (name, value) in &self.explanation.facts {
                let value = value.as_deref().unwrap_or("absent");
                text += &format!("  {name} = {value}\n");
            }
        }
        let changes = self.explanation.changes(*access);
        if !changes.is_empty() {
            text += "\nchanges that reverse the decision\n";
            for change in changes {
                text += &format!("  {change}\n");
            }
        }
        if access.is_possible() {
            text += "\ncolumns\n";
            for (class, column) in self.simulator.columns(&self.simulation).unwrap_or_default() {
                let by = column.policies.join(", ");
                text += &format!("  {class}: {} {by}\n", tier_word(column.decision));
            }
        }
        if let Some(row) = &self.row {
            let word = if row.decision { "released" } else { "withheld" };
            let by = match row.policies.as_slice() {
                [] => "no policy".to_owned(),
                ids => ids.join(", "),
            };
            text += &format!("\nrow {word} by {by}\n");
        }
        text
    }

    fn as_json(&self) -> Value {
        let policies = self.explanation.policies.iter().map(|policy| {
            let conditions = policy
                .conditions
                .iter()
                .map(|it| json!({ "condition": it.text, "holds": it.holds }));
            json!({
                "id": policy.id,
                "file": policy.location.as_ref().map(|at| &at.file),
                "line": policy.location.as_ref().map(|at| at.line),
                "effect": if policy.forbids { "forbid" } else { "permit" },
                "decided": policy.decided,
                "conditions": conditions.collect::<Vec<_>>(),
            })
        });
        let columns = self.simulator.columns(&self.simulation).unwrap_or_default();
        let columns = columns.into_iter().map(|(class, column)| {
            let tier = tier_word(column.decision);
            (
                class.to_string(),
                json!({ "tier": tier, "policies": column.policies }),
            )
        });
        json!({
            "decision": self.simulation.access.as_str(),
            "approval": self.simulation.approvers,
            "reason": self.simulation.reason.map(wardgate_domain::DenialReason::as_str),
            "decided_by": self.simulation.policies,
            "policies": policies.collect::<Vec<_>>(),
            "facts": self.explanation.facts,
            "changes": self.explanation.changes(self.simulation.access),
            "columns": columns.collect::<Map<_, _>>(),
            "row": self.row.as_ref().map(|row| json!({ "released": row.decision, "policies": row.policies })),
            "recorded": self.compared_with_record(),
        })
    }
}
