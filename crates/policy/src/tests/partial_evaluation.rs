//! Partial evaluation must not change answers: every result is compared with an ordinary Cedar evaluation of the
//! complete request.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cedar_policy::{
    Authorizer, Context, Decision as CedarDecision, Entities, EntityUid, PolicySet as Policies,
    Request, RestrictedExpression, Schema,
};
use proptest::prelude::*;
use wardgate_domain::{AttributeValue, Caller, Digest, ToolFacts, Verdict};

use super::fixture::{Dir, TestPolicy, hospital, start};
use super::samples::{Row, admits, row_entity};
use crate::PolicySet;
use crate::context::{CallContext, CallParts};
use crate::history::{CallCounters, CallCounts};

/// The policies of the hospital example, together with rules that combine forbids, arithmetic and sets.
const MIXED: &str = r#"
@id("1") permit(principal in Role::"A", action == Action::"read", resource is Row);
@id("2") permit(principal in Role::"B", action == Action::"read", resource is Row)
when { resource has n && principal has level && resource.n * 2 <= principal.level };
@id("3") permit(principal, action == Action::"read", resource is Row)
when { if resource has open && resource.open then principal in Role::"C" else resource has owner };
@id("4") forbid(principal, action == Action::"read", resource is Row)
when { resource has owner && [principal.subject, "y"].contains(resource.owner) && principal has ward };
@id("5") forbid(principal in Role::"C", action == Action::"read", resource is Row)
unless { resource has n && (resource.n > 1 || resource.n == -1) };
@id("6") forbid(principal, action == Action::"read", resource is Row)
when { principal has ward && principal.ward == "z" && resource has owner && resource.owner like "x*" };
@id("7") permit(principal in Role::"A", action == Action::"call_tool", resource);
@id("8") permit(principal in Role::"B", action == Action::"call_tool", resource in Tag::"x")
when { context.arguments.hasTag("x") && context.arguments.getTag("x") == principal.subject };
@id("9") forbid(principal, action == Action::"call_tool", resource)
when { context.arguments.hasTag("y") && !(principal has ward) };
@id("10") forbid(principal, action == Action::"read", resource is Row)
when { context.local.weekday == 5 && context.time > datetime("2027-01-01") && resource has n && resource.n == 0 };
"#;

struct Case {
    test_policy: TestPolicy,
    policies: Policies,
    schema: Schema,
}

impl Case {
    fn new(set: PolicySet, texts: &[String]) -> Self {
        Self {
            policies: texts.concat().parse().unwrap(),
            schema: set.vocabulary.schema.clone(),
            test_policy: TestPolicy::over(set),
        }
    }

    /// Evaluates the complete request with Cedar, with all entities present. An error counts as a refusal.
    fn allows(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        action: &str,
        resource: EntityUid,
        more: cedar_policy::Entity,
        context: Context,
    ) -> bool {
        let uid = |text: String| -> EntityUid { text.parse().unwrap() };
        let mut attributes =
            BTreeMap::from([("subject", caller.subject()), ("tenant", caller.tenant())])
                .into_iter()
                .map(|(name, value)| {
                    (
                        name.to_owned(),
                        RestrictedExpression::new_string(value.to_owned()),
                    )
                })
                .collect::<std::collections::HashMap<_, _>>();
        for (name, value) in caller.attributes() {
            let value = match value {
                AttributeValue::Text(text) => RestrictedExpression::new_string(text.clone()),
                AttributeValue::Integer(number) => RestrictedExpression::new_long(*number),
                _ => unreachable!(),
            };
            attributes.insert(name.clone(), value);
        }
        let roles = caller
            .roles()
            .iter()
            .map(|role| uid(format!("Role::\"{role}\"")))
            .collect();
        let user = uid(format!("User::\"{}\"", caller.subject()));
        let user = cedar_policy::Entity::new(user, attributes, roles).unwrap();
        let tags = tool
            .tags
            .iter()
            .map(|tag| uid(format!("Tag::\"{tag}\"")))
            .collect();
        let read_only = [("read_only".to_owned(), RestrictedExpression::new_bool(true))].into();
        let tool =
            cedar_policy::Entity::new(uid(format!("Tool::\"{}\"", tool.name)), read_only, tags)
                .unwrap();
        let principal = user.uid();
        let entities = Entities::from_entities([user, tool, more], Some(&self.schema)).unwrap();
        let action = uid(format!("Action::\"{action}\""));
        let request =
            Request::new(principal, action, resource, context, Some(&self.schema)).unwrap();
        let response = Authorizer::new().is_authorized(&request, &self.policies, &entities);
        response.diagnostics().errors().next().is_none()
            && response.decision() == CedarDecision::Allow
    }

    fn same_row_answer(&self, caller: &Caller, tool: &ToolFacts, row: &Row) {
        let arguments = r#"{"patient_id": "a", "x": "a"}"#;
        let Verdict::Allow(signed) = self.test_policy.authorize(caller, tool, arguments).verdict
        else {
            return;
        };
        let rule = signed.unverified_terms().unwrap().row_rule.unwrap();
        let entity = row_entity(&rule.entity, row);
        let uid = entity.uid();
        let plain = self.allows(caller, tool, "read", uid, entity, context(None));
        assert_eq!(admits(&rule, caller.subject(), row), plain, "{rule:?}");
    }

    fn same_call_answer(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        arguments: &BTreeMap<&str, &str>,
    ) {
        let json = serde_json::to_string(arguments).unwrap();
        let decided = matches!(
            self.test_policy.authorize(caller, tool, &json).verdict,
            Verdict::Allow(_)
        );
        let uid: EntityUid = "Arguments::\"1\"".parse().unwrap();
        let string = |value: &str| RestrictedExpression::new_string(value.to_owned());
        let tags = arguments
            .iter()
            .map(|(name, value)| ((*name).to_owned(), string(value)));
        let tagged = cedar_policy::Entity::new_with_tags(uid.clone(), [], [], tags).unwrap();
        let resource = format!("Tool::\"{}\"", tool.name).parse().unwrap();
        let context = context(Some(uid));
        assert_eq!(
            decided,
            self.allows(caller, tool, "call_tool", resource, tagged, context)
        );
    }
}

/// Returns the context of every decision in these tests.
fn context(arguments: Option<EntityUid>) -> Context {
    let context = CallContext {
        time: start(),
        time_zone: "Europe/Berlin".parse().unwrap(),
        client_ip: None,
        counts: CallCounts::new(),
    };
    let counters = CallCounters::new();
    let call = arguments.map(|arguments| CallParts {
        arguments,
        counters: &counters,
    });
    context.to_cedar(call).unwrap()
}

static DEMO: LazyLock<Case> = LazyLock::new(|| {
    let read = |name: &str| std::fs::read_to_string(hospital().join(name)).unwrap();
    let policies = ["auditor", "billing", "doctor", "nurse", "patient"]
        .map(|name| read(&format!("{name}.cedar")));
    // Cedar numbers policies itself, and policies of different files would conflict only by these numbers.
    Case::new(PolicySet::load(&hospital()).unwrap(), &policies)
});

static MIX: LazyLock<Case> =
    LazyLock::new(|| Case::new(Dir::with(MIXED).load().unwrap(), &[MIXED.to_owned()]));

fn tool(name: &str, tags: &[&str], entity: &str) -> ToolFacts {
    ToolFacts {
        definition_digest: Digest::compute(format!("{name}{tags:?}").as_bytes()),
        tags: tags.iter().map(ToString::to_string).collect(),
        entity: Some(entity.to_owned()),
        ..wardgate_testkit::tool_facts(name)
    }
}

fn callers(
    roles: &'static [&'static str],
    attributes: &'static [&'static str],
) -> impl Strategy<Value = Caller> {
    let value = prop::sample::select(vec!["a", "b", "x1", "z"]);
    let attributes = attributes
        .iter()
        .map(|name| (Just(*name), prop::option::of(value.clone())))
        .collect::<Vec<_>>();
    let roles = prop::sample::subsequence(roles, 0..=roles.len());
    (value, roles, attributes, prop::option::of(-2..4_i64)).prop_map(
        |(subject, roles, attributes, level)| {
            let texts = attributes.into_iter().filter_map(|(name, value)| {
                Some((name.to_owned(), AttributeValue::Text(value?.to_owned())))
            });
            let level = level.map(|level| ("level".to_owned(), AttributeValue::Integer(level)));
            Caller::from_verified(wardgate_domain::CallerClaims {
                attributes: texts.chain(level).collect(),
                ..wardgate_testkit::claims(subject, &roles)
            })
        },
    )
}

/// Generates rows with any subset of the strings `names`, the number `n` if `number` is true, and the Boolean attribute
/// that `truth` names.
fn rows(
    names: &'static [&'static str],
    truth: &'static str,
    number: bool,
) -> impl Strategy<Value = Row> {
    let value = prop::sample::select(vec!["a", "b", "x1", "y", "z"]);
    let texts = names
        .iter()
        .map(|name| (Just(*name), prop::option::of(value.clone())))
        .collect::<Vec<_>>();
    (
        texts,
        prop::option::of(any::<bool>()),
        prop::option::of(-2..4_i64),
    )
        .prop_map(move |(texts, open, n)| {
            let texts = texts.into_iter().filter_map(|(name, value)| {
                Some((
                    name.to_owned(),
                    RestrictedExpression::new_string(value?.to_owned()),
                ))
            });
            let open = open.filter(|_| !truth.is_empty());
            let open = open.map(|open| (truth.to_owned(), RestrictedExpression::new_bool(open)));
            let n = n
                .filter(|_| number)
                .map(|n| ("n".to_owned(), RestrictedExpression::new_long(n)));
            texts.chain(open).chain(n).collect()
        })
}

const STAFF: &[&str] = &["Doctor", "Nurse", "Billing", "Patient"];

/// Generates callers without the attribute `level`. The example schema does not declare it; Cedar would reject the
/// attribute, while the service leaves it out.
fn demo_callers() -> impl Strategy<Value = Caller> {
    callers(STAFF, &["ward", "patient_id"]).prop_map(|caller| {
        let mut attributes = caller.attributes().clone();
        attributes.remove("level");
        let roles: Vec<_> = caller.roles().iter().map(String::as_str).collect();
        Caller::from_verified(wardgate_domain::CallerClaims {
            attributes,
            ..wardgate_testkit::claims(caller.subject(), &roles)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_demos_row_rules_admit_what_plain_cedar_allows(
        caller in demo_callers(),
        record in rows(&["patient_id", "assigned_doctor", "attending_doctor", "ward"], "sealed", false),
        shift in rows(&["staff", "ward"], "", false),
    ) {
        DEMO.same_row_answer(&caller, &tool("records", &["clinical"], "MedicalRecord"), &record);
        DEMO.same_row_answer(&caller, &tool("shifts", &["staff"], "Shift"), &shift);
    }

    #[test]
    fn row_rules_of_every_shape_admit_what_plain_cedar_allows(
        caller in callers(&["A", "B", "C"], &["ward"]),
        row in rows(&["owner"], "open", true),
    ) {
        MIX.same_row_answer(&caller, &tool("t", &["x"], "Row"), &row);
    }

    #[test]
    fn calls_are_decided_as_plain_cedar_decides_them(
        caller in callers(&["A", "B", "C"], &["ward"]),
        tagged in any::<bool>(),
        arguments in prop::collection::btree_map(
            prop::sample::select(vec!["x", "y", "w"]), prop::sample::select(vec!["a", "b", "x1"]), 0..3),
    ) {
        let tags: &[&str] = if tagged { &["x"] } else { &[] };
        MIX.same_call_answer(&caller, &tool("t", tags, "Row"), &arguments);
    }
}
