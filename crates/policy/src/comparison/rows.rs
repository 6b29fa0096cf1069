//! The rows that the row rules of a policy set admit, evaluated once for each rule.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Map, Value};

use crate::engine::ResultView;
use crate::simulator::{Simulation, Simulator};

/// Row type, whether every row is admitted, and the residual policies.
type RowRuleKey = (String, bool, Vec<String>);

/// The answers of one policy set about rows. Many callers have the same row rule, and a row rule is evaluated with the row
/// alone, so equal rules have equal answers.
#[derive(Debug)]
pub(super) struct RowAnswers<'a> {
    simulator: &'a Simulator,
    /// Whether each row is admitted, by rule.
    admitted: HashMap<RowRuleKey, Rc<[bool]>>,
}

impl<'a> RowAnswers<'a> {
    pub(super) fn new(simulator: &'a Simulator) -> Self {
        Self {
            simulator,
            admitted: HashMap::new(),
        }
    }

    /// Returns for each of `rows` whether the call releases it. `view` is that of an allowed call, and `None` for any other.
    /// A row that cannot be evaluated is not released. `rows` must be the same for every call with this row type, and
    /// callers must have the same subject.
    pub(super) fn evaluate_rows(
        &mut self,
        simulation: &Simulation,
        view: Option<&ResultView>,
        rows: &[Map<String, Value>],
    ) -> Rc<[bool]> {
        let Some(rule) = view.and_then(|view| view.row_rule.as_ref()) else {
            return rows.iter().map(|_| false).collect();
        };
        let key = (rule.entity.clone(), rule.all, rule.policies_json.clone());
        let simulator = self.simulator;
        let admitted = self.admitted.entry(key).or_insert_with(|| {
            let admits = |row| simulator.admits(simulation, rule, row).unwrap_or(false);
            rows.iter().map(admits).collect()
        });
        Rc::clone(admitted)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wardgate_domain::{TimeZone, Timestamp, ToolFacts};
    use wardgate_testkit::tool_facts;

    use super::*;
    use crate::{CallContext, CallCounts, CallerSample, PolicySet, SimulatedCall, sample_caller};

    const SCHEMA: &str =
        "entity User { ward?: String }; entity Row { ward?: String, owner?: String };";

    const POLICIES: &str = r#"
@id("calls") permit (principal, action == Action::"call_tool", resource);
@id("reads") permit (principal, action == Action::"read", resource is Row)
when { principal has ward && resource has ward && resource.ward == principal.ward };
"#;

    fn simulator() -> Simulator {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("s.cedarschema"), SCHEMA).unwrap();
        std::fs::write(dir.path().join("p.cedar"), POLICIES).unwrap();
        Simulator::new(PolicySet::load(dir.path()).unwrap())
    }

    fn call(simulator: &Simulator, roles: &[&str], ward: &str) -> Simulation {
        let sample = CallerSample {
            subject: "s".to_owned(),
            roles: roles.iter().map(|&role| role.to_owned()).collect(),
            tenant: String::new(),
            attributes: Map::from_iter([("ward".to_owned(), json!(ward))]),
        };
        let call = SimulatedCall {
            caller: sample_caller(&sample).unwrap(),
            tool: ToolFacts {
                entity: Some("Row".to_owned()),
                ..tool_facts("t")
            },
            arguments: b"{}".to_vec(),
            context: CallContext {
                time: Timestamp::from_seconds(1_800_000_000),
                time_zone: TimeZone::default(),
                client_ip: None,
                counts: CallCounts::new(),
            },
        };
        simulator.call(&call).unwrap()
    }

    fn row(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_rule_is_evaluated_once_and_answers_as_the_simulator_does() {
        let simulator = simulator();
        let rows = [
            row(&json!({})),
            row(&json!({ "ward": "W1" })),
            row(&json!({ "ward": "W2", "owner": "s" })),
            row(&json!({ "ward": 7 })),
        ];
        let mut answers = RowAnswers::new(&simulator);
        for (roles, ward, rules) in [
            (&["Guest"][..], "W1", 1),
            (&["Nurse"][..], "W1", 1),
            (&["Nurse"][..], "W2", 2),
        ] {
            let simulation = call(&simulator, roles, ward);
            let view = simulator.view(&simulation).unwrap();
            let admitted = answers.evaluate_rows(&simulation, Some(&*view), &rows);
            let expected = rows.iter().map(|row| {
                let answer = simulator.row(&simulation, row);
                answer.is_ok_and(|it| it.decision)
            });
            assert_eq!(admitted.to_vec(), expected.collect::<Vec<_>>());
            assert_eq!(admitted.iter().filter(|it| **it).count(), 1, "{ward}");
            assert_eq!(answers.admitted.len(), rules);
        }
        let simulation = call(&simulator, &[], "W1");
        let denied = answers.evaluate_rows(&simulation, None, &rows);
        assert_eq!(denied.to_vec(), [false; 4]);
    }
}
