//! A proof that a change of policies gives nobody new access, by the SMT solver cvc5.
//!
//! For each question that Wardgate asks its policies, `cedar-policy-symcc` translates "the new policies allow it, and the old
//! policies do not" to a formula over all callers, resources, arguments and contexts, and the solver searches for a solution.
//! If there is none, the change gives nobody new access.
//!
//! Wardgate denies a request if a policy fails, where Cedar ignores the policy. The new policies can therefore allow less than
//! the formula assumes, which is harmless. The old policies can do so too; then a request that they denied because of the
//! failure could be allowed now. Hence none of the old policies may be able to fail.
//!
//! The formula covers more than Wardgate asks, for example a weekday of 9, or a caller whose id is not the subject of their
//! token. A solution is therefore an example to look at, and no proof that somebody gains access.

use std::collections::BTreeSet;
use std::path::Path;

use cedar_policy::{self as cedar, EntityUid, Request, RequestEnv, Schema};
use cedar_policy_symcc::err::{Error as SolverError, SolverError as ProcessError};
use cedar_policy_symcc::solver::LocalSolver;
use cedar_policy_symcc::{CedarSymCompiler, CompiledPolicy, CompiledPolicySet, Env};
use tokio::process::Command;
use wardgate_domain::OfferKind;

use crate::approval::{approver_role, needs_approval};
use crate::call::decide;
use crate::schema_shape::Record;
use crate::set::{PolicySet, gather};
use crate::vocabulary::{PolicyQuestion, Vocabulary};

/// Maximum time for one formula, as an option of cvc5.
const TIME_LIMIT: &str = "--tlimit-per=30000";

/// What the solver proved about a change of policies.
#[derive(Debug)]
pub struct GainProof {
    /// The number of questions.
    pub questions: usize,
    /// The questions for which it is not proved that nobody gains access. If there is none, nobody gains access by the change.
    pub unproved: Vec<UnprovedQuestion>,
}

/// A question for which it is not proved that nobody gains access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnprovedQuestion {
    /// The question, for example `reads rows of Visit`.
    pub what: String,
    /// Why there is no proof. For a request that only the new policies allow, the text contains this request and its entities.
    pub reason: String,
}

/// Tries to prove that everything that `after` allows is allowed by `before`. `solver` is the program cvc5, version 1.3.1 or
/// later. Fails if the program cannot be run.
pub async fn prove_no_gain(
    before: &PolicySet,
    after: &PolicySet,
    solver: &Path,
) -> Result<GainProof, std::io::Error> {
    let questions = questions(before, after);
    let count = questions.len();
    let mut unproved = Vec::new();
    // A solver that failed is not used again.
    let mut process = start(solver)?;
    for question in questions {
        let reason = match question.declared_differently {
            Some(reason) => Some(reason),
            None => match question
                .refute(&mut process, &after.vocabulary.schema)
                .await
            {
                Ok(reason) => reason,
                Err(error) => {
                    process = start(solver)?;
                    Some(describe(&error))
                }
            },
        };
        let what = question.what;
        unproved.extend(reason.map(|reason| UnprovedQuestion { what, reason }));
    }
    Ok(GainProof {
        questions: count,
        unproved,
    })
}

type Process = CedarSymCompiler<LocalSolver>;

fn start(solver: &Path) -> Result<Process, std::io::Error> {
    let mut command = Command::new(solver);
    command
        .args(["--lang", "smt", TIME_LIMIT])
        .kill_on_drop(true);
    let process = LocalSolver::from_command(&mut command).map_err(|error| match error {
        ProcessError::Io(error) => error,
        other => std::io::Error::other(other),
    })?;
    CedarSymCompiler::new(process).map_err(std::io::Error::other)
}

fn describe(error: &SolverError) -> String {
    match error {
        SolverError::SolverUnknown => "the solver found no answer within its time limit".to_owned(),
        SolverError::PolicyNotWellTyped { .. } => {
            "the old policies do not fit the new schema".to_owned()
        }
        SolverError::SolverError(ProcessError::Io(error)) => {
            format!("the connection to the solver failed: {error}")
        }
        error => error.to_string(),
    }
}

/// Returns a request and the entities with which it is allowed, one per line. Entities without any property are left out.
fn describe_request(env: &Env) -> String {
    let request = &env.request;
    let uid = |uid: Option<&EntityUid>| uid.map(ToString::to_string).unwrap_or_default();
    let mut text = format!(
        "principal: {}, resource: {}",
        uid(request.principal()),
        uid(request.resource())
    );
    if let Some(context) = request.context() {
        text += &format!(", context: {context}");
    }
    let mut lines = BTreeSet::new();
    for entity in env.entities.iter() {
        let groups = env.entities.ancestors(&entity.uid()).into_iter().flatten();
        let groups: BTreeSet<_> = groups.map(ToString::to_string).collect();
        let values = entity.attrs().chain(entity.tags());
        let values = values.filter_map(|(name, value)| Some((name, value.ok()?)));
        let values: BTreeSet<_> = values
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        if groups.is_empty() && values.is_empty() {
            continue;
        }
        let join = |parts: BTreeSet<String>| parts.into_iter().collect::<Vec<_>>().join(", ");
        let uid = entity.uid();
        lines.insert(format!(
            "{uid} in [{}] {{ {} }}",
            join(groups),
            join(values)
        ));
    }
    for line in lines {
        text += "\n";
        text += &line;
    }
    text
}

/// A question about which both sets are compared.
struct ComparedQuestion {
    what: String,
    environment: RequestEnv,
    before: cedar::PolicySet,
    after: cedar::PolicySet,
    /// For a tier of a column: the actions of milder tiers, and the old policies about them.
    milder: Vec<(EntityUid, cedar::PolicySet)>,
    /// The reason why the declarations of the two sets cannot be compared, if they cannot.
    declared_differently: Option<String>,
}

impl ComparedQuestion {
    /// Returns why there is no proof, or `None` if there is one.
    async fn refute(
        &self,
        process: &mut Process,
        schema: &Schema,
    ) -> Result<Option<String>, SolverError> {
        let environment = &self.environment;
        let before = CompiledPolicySet::compile(&self.before, environment, schema)?;
        let after = CompiledPolicySet::compile(&self.after, environment, schema)?;
        let gain = process.check_implies_with_counterexample_opt(&after, &before);
        if let Some(gain) = gain.await? {
            return Ok(Some(if self.was_milder(&gain) {
                "the old policies show some of these columns in a milder tier, which is not compared".to_owned()
            } else {
                format!(
                    "only the new policies allow this request:\n{}",
                    describe_request(&gain)
                )
            }));
        }
        for policy in self.before.policies() {
            let compiled = CompiledPolicy::compile(policy, environment, schema)?;
            if !process.check_never_errors_opt(&compiled).await? {
                return Ok(Some(format!(
                    "the old policy `{}` can fail, which denies a request that the new policies may allow",
                    policy.id()
                )));
            }
        }
        Ok(None)
    }

    /// Returns whether the old policies show the column of this request in a milder tier.
    fn was_milder(&self, gain: &Env) -> bool {
        let Env { request, entities } = gain;
        let parts = (request.principal(), request.resource(), request.context());
        let (Some(principal), Some(resource), Some(context)) = parts else {
            return false;
        };
        self.milder.iter().any(|(action, policies)| {
            let (principal, resource) = (principal.clone(), resource.clone());
            Request::new(principal, action.clone(), resource, context.clone(), None)
                .is_ok_and(|milder| matches!(decide(&milder, policies, entities), Ok(Ok(_))))
        })
    }
}

fn questions(before: &PolicySet, after: &PolicySet) -> Vec<ComparedQuestion> {
    let mut questions = Vec::new();
    for environment in after.vocabulary.schema.request_envs() {
        let Some(question) = after.vocabulary.question_of(&environment) else {
            continue;
        };
        let sets =
            [before, after].map(|set| set.policies_about(&question).cloned().unwrap_or_default());
        let milder = match question {
            PolicyQuestion::Show(tier) => {
                let actions = before.vocabulary.show.iter().zip(&before.show);
                let milder = actions.map(|((_, action), set)| (action.clone(), set.clone()));
                milder.take(tier).collect()
            }
            _ => Vec::new(),
        };
        let declared_differently =
            declared_differently(&before.vocabulary, &after.vocabulary, &question);
        for (what, [old, new]) in parts(&question, &after.vocabulary, &sets) {
            questions.push(ComparedQuestion {
                what,
                environment: environment.clone(),
                before: old,
                after: new,
                milder: milder.clone(),
                declared_differently: declared_differently.clone(),
            });
        }
    }
    questions
}

/// Splits the question about tool calls by who has to approve a call. Each approver is compared alone, because nobody gains
/// anything only if every call that is possible with an approval was possible with that approval, or with none.
fn parts(
    question: &PolicyQuestion,
    vocabulary: &Vocabulary,
    sets: &[cedar::PolicySet; 2],
) -> Vec<(String, [cedar::PolicySet; 2])> {
    let what = match question {
        PolicyQuestion::Use(OfferKind::Tool) => "calls tools".to_owned(),
        PolicyQuestion::Use(OfferKind::Connect) => "connects to sources".to_owned(),
        PolicyQuestion::Use(OfferKind::Resources) => "reads resources".to_owned(),
        PolicyQuestion::Use(OfferKind::Prompts) => "gets prompts".to_owned(),
        PolicyQuestion::Read(row) => format!("reads rows of {row}"),
        PolicyQuestion::Show(tier) => format!("sees columns {}", vocabulary.show[*tier].0.as_str()),
        PolicyQuestion::Recall => "reads conversations of others".to_owned(),
        PolicyQuestion::Operator(action) => format!("performs {}", action.as_str()),
    };
    let approvers: BTreeSet<_> = (sets.iter().flat_map(cedar::PolicySet::policies))
        .filter(|policy| needs_approval(policy))
        .map(|policy| approver_role(policy).map(str::to_owned))
        .collect();
    let with = |approver: Option<&Option<String>>| {
        sets.each_ref().map(|set| {
            let policies = set.policies().filter(|policy| {
                !needs_approval(policy)
                    || approver.is_some_and(|it| it.as_deref() == approver_role(policy))
            });
            gather(policies.cloned())
        })
    };
    let mut parts = vec![(what.clone(), with(None))];
    parts.extend(approvers.iter().map(|approver| {
        let by = approver.as_deref().unwrap_or("the caller");
        (format!("{what}, approved by {by}"), with(Some(approver)))
    }));
    parts
}

/// Returns why the old policies cannot be compared under the new declarations. Both sets are translated with the new schema,
/// so everything that the old set declared must be declared in the same way: a value of another type denies a request.
fn declared_differently(
    before: &Vocabulary,
    after: &Vocabulary,
    question: &PolicyQuestion,
) -> Option<String> {
    let missing = |of: &str, before: &Record, after: &Record| {
        let mut names = before.iter();
        let (name, _) = names.find(|(name, attribute)| after.get(*name) != Some(attribute))?;
        Some(format!(
            "the new schema does not declare the attribute `{name}` of {of} as the old one does"
        ))
    };
    let callers = missing("User", &before.caller_attributes, &after.caller_attributes);
    callers.or_else(|| match question {
        PolicyQuestion::Use(kind) => {
            let mut counters = before.counters(*kind).iter();
            let changed = counters.find(|(name, it)| after.counters(*kind).get(*name) != Some(it));
            // The types of arguments are checked only if a policy reads them.
            let arguments = (before.argument_types.iter())
                .find(|(name, it)| after.argument_types.get(*name) != Some(it));
            if let Some((name, _)) = arguments {
                return Some(format!(
                    "the new policies do not check the argument `{name}` as the old ones do"
                ));
            }
            changed.map(|(name, _)| format!("the counter `{name}` is declared differently"))
        }
        PolicyQuestion::Read(row) => {
            let [before, after] = [before, after].map(|it| it.rows.get(row));
            missing(row, &before?.attributes, &after?.attributes)
        }
        PolicyQuestion::Show(_) | PolicyQuestion::Recall | PolicyQuestion::Operator(_) => None,
    })
}
