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
//! Wardgate also denies where it cannot ask the policies: a row without a column that its rule reads, an argument of another
//! type than declared, earlier calls that cannot be counted, a row rule that cannot be evaluated for a single row. The formulas do not contain that, so a proof is about requests
//! that fit the schema, with the same counts of earlier calls for both sets. On the other hand, the formulas cover requests
//! that never occur, for example a weekday of 9. A solution is therefore an example to look at, and no proof of a gain.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use cedar_policy::{self as cedar, EntityUid, Policy, Request, RequestEnv, Schema};
use cedar_policy_symcc::err::Error as SolverError;
use cedar_policy_symcc::solver::LocalSolver;
use cedar_policy_symcc::{CedarSymCompiler, CompiledPolicy, CompiledPolicySet, Env};
use tokio::process::Command;
use tokio::time::timeout;
use wardgate_domain::OfferKind;

use crate::approval::{approver_role, needs_approval};
use crate::call::decide;
use crate::limits::COMPILER_STACK_BYTES;
use crate::set::{PolicySet, gather};
use crate::vocabulary::{PolicyQuestion, Vocabulary};

/// Maximum time for one formula, as an option of cvc5.
const FORMULA_LIMIT: &str = "--tlimit-per=30000";

/// Maximum time for all formulas of a question. It also ends a program that does not answer.
const QUESTION_LIMIT: Duration = Duration::from_secs(60);

/// The oldest release of cvc5 with which the translation is tested.
const OLDEST_RELEASE: [u32; 3] = [1, 3, 1];

/// Maximum length of a message of the solver in a reason, in characters.
const MAX_MESSAGE: usize = 200;

/// What the solver proved about a change of policies.
#[derive(Debug)]
pub struct NoGainProof {
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
    /// Why there is no proof.
    pub obstacle: ProofObstacle,
}

/// Why it is not proved that nobody gains access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProofObstacle {
    /// Only the new policies allow this request, which is followed by its entities, one per line.
    Gain(String),
    /// The old policies show the column of the found request in a milder tier. There may be another request.
    MilderTier,
    /// The old policy with this id can fail, and then denies a request that the new policies may allow.
    CanFail(String),
    /// The schemas of the two sets differ.
    Declarations,
    /// The solver gave no answer, for this reason.
    NoAnswer(String),
}

impl ProofObstacle {
    /// Returns the name of the obstacle in documents.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Gain(_) => "gain",
            Self::MilderTier => "milder_tier",
            Self::CanFail(_) => "can_fail",
            Self::Declarations => "declarations",
            Self::NoAnswer(_) => "no_answer",
        }
    }
}

impl fmt::Display for ProofObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gain(request) => write!(f, "only the new policies allow this request:\n{request}"),
            Self::MilderTier => f.write_str(
                "only the new policies show a column in this tier, and the old ones show it in a milder tier",
            ),
            Self::CanFail(policy) => write!(
                f,
                "the old policy `{policy}` can fail, which denies a request that the new policies may allow"
            ),
            Self::Declarations => f.write_str("the two sets have different schemas"),
            Self::NoAnswer(reason) => f.write_str(reason),
        }
    }
}

/// Tries to prove that everything that `after` allows is allowed by `before`. `solver` is the program cvc5. Fails if the program
/// cannot be run, or is older than version 1.3.1.
pub fn prove_no_gain(
    before: &PolicySet,
    after: &PolicySet,
    solver: &Path,
) -> Result<NoGainProof, io::Error> {
    // The translation of a set with many policies is a deeply nested formula.
    std::thread::scope(|scope| {
        let prove = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(prove_questions(before, after, solver))
        };
        let thread = std::thread::Builder::new().stack_size(COMPILER_STACK_BYTES);
        let failed = |_| io::Error::other("the translation of the policies failed");
        thread.spawn_scoped(scope, prove)?.join().map_err(failed)?
    })
}

async fn prove_questions(
    before: &PolicySet,
    after: &PolicySet,
    solver: &Path,
) -> Result<NoGainProof, io::Error> {
    check_release(solver).await?;
    let mut process = start(solver)?;
    let questions = questions(before, after);
    let count = questions.len();
    let has_same_schema = has_same_schema(&before.vocabulary, &after.vocabulary);
    let mut unproved = Vec::new();
    for question in questions {
        let obstacle = if has_same_schema {
            let found = question.find_obstacle(&mut process, &after.vocabulary.schema);
            match timeout(QUESTION_LIMIT, found).await {
                Ok(Ok(obstacle)) => obstacle,
                failed => {
                    // A process that failed is not used again.
                    process = start(solver)?;
                    Some(ProofObstacle::NoAnswer(match failed {
                        Ok(Err(error)) => describe(&error),
                        _ => format!("the solver did not answer within {QUESTION_LIMIT:?}"),
                    }))
                }
            }
        } else {
            Some(ProofObstacle::Declarations)
        };
        let what = question.what;
        unproved.extend(obstacle.map(|obstacle| UnprovedQuestion { what, obstacle }));
    }
    Ok(NoGainProof {
        questions: count,
        unproved,
    })
}

type SolverProcess = CedarSymCompiler<LocalSolver>;

/// Fails if the program is older than [`OLDEST_RELEASE`]. It prints, for example, `This is cvc5 version 1.3.1`.
async fn check_release(solver: &Path) -> Result<(), io::Error> {
    let mut command = Command::new(solver);
    let printed = command.arg("--version").kill_on_drop(true).output();
    let printed = timeout(QUESTION_LIMIT, printed).await??;
    let text = String::from_utf8_lossy(&printed.stdout);
    let version = text.split_once("cvc5 version ").map(|(_, version)| version);
    let mut numbers = version
        .unwrap_or_default()
        .split(|it: char| !it.is_ascii_digit());
    let release = [(); 3].map(|()| numbers.next().and_then(|it| it.parse::<u32>().ok()));
    if release < OLDEST_RELEASE.map(Some) {
        return Err(io::Error::other("it is not cvc5 1.3.1 or later"));
    }
    Ok(())
}

fn start(solver: &Path) -> Result<SolverProcess, io::Error> {
    let mut command = Command::new(solver);
    command.args(["--lang", "smt", FORMULA_LIMIT]);
    command.kill_on_drop(true);
    let process = LocalSolver::from_command(&mut command).map_err(io::Error::other)?;
    CedarSymCompiler::new(process).map_err(io::Error::other)
}

fn describe(error: &SolverError) -> String {
    match error {
        SolverError::SolverUnknown => "the solver found no answer in 30 seconds".to_owned(),
        error => {
            let message: String = error.to_string().chars().take(MAX_MESSAGE).collect();
            format!("the solver failed: {message}")
        }
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
        let mut line = uid.to_string();
        if !groups.is_empty() {
            line += &format!(" in [{}]", join(groups));
        }
        lines.insert(format!("{line} {{ {} }}", join(values)));
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
    /// The old policies that must not be able to fail, except those of which another question of the environment takes care.
    checked: Vec<Policy>,
    /// For a tier of a column: the actions of milder tiers, and the old policies about them.
    milder: Vec<(EntityUid, cedar::PolicySet)>,
}

impl ComparedQuestion {
    /// Returns why there is no proof, or `None` if there is one.
    async fn find_obstacle(
        &self,
        process: &mut SolverProcess,
        schema: &Schema,
    ) -> Result<Option<ProofObstacle>, SolverError> {
        let environment = &self.environment;
        let before = CompiledPolicySet::compile(&self.before, environment, schema)?;
        let after = CompiledPolicySet::compile(&self.after, environment, schema)?;
        let gain = process.check_implies_with_counterexample_opt(&after, &before);
        if let Some(gain) = gain.await? {
            return Ok(Some(if self.was_milder(&gain) {
                ProofObstacle::MilderTier
            } else {
                ProofObstacle::Gain(describe_request(&gain))
            }));
        }
        for policy in &self.checked {
            let compiled = CompiledPolicy::compile(policy, environment, schema)?;
            if !process.check_never_errors_opt(&compiled).await? {
                return Ok(Some(ProofObstacle::CanFail(policy.id().to_string())));
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
        let of_set = |set: &PolicySet| set.policies_about(&question).cloned().unwrap_or_default();
        let sets = [before, after].map(of_set);
        let milder = match question {
            PolicyQuestion::Show(tier) => {
                let actions = before.vocabulary.show.iter().zip(&before.show);
                let milder = actions.map(|((_, action), set)| (action.clone(), set.clone()));
                milder.take(tier).collect()
            }
            _ => Vec::new(),
        };
        let what = describe_question(&question, &after.vocabulary);
        for approver in approvers(&sets) {
            let what = match &approver {
                None => what.clone(),
                Some(None) => format!("{what}, approved by the caller"),
                Some(Some(role)) => format!("{what}, approved by {role}"),
            };
            let [old, new] = sets
                .each_ref()
                .map(|set| with_approver(set, approver.as_ref()));
            let is_new = |policy: &&Policy| approver.is_none() || needs_approval(policy);
            questions.push(ComparedQuestion {
                what,
                environment: environment.clone(),
                checked: old.policies().filter(is_new).cloned().collect(),
                before: old,
                after: new,
                milder: milder.clone(),
            });
        }
    }
    questions
}

fn describe_question(question: &PolicyQuestion, vocabulary: &Vocabulary) -> String {
    match question {
        PolicyQuestion::Use(OfferKind::Tool) => "calls tools".to_owned(),
        PolicyQuestion::Use(OfferKind::Connect) => "connects to sources".to_owned(),
        PolicyQuestion::Use(OfferKind::Resources) => "reads resources".to_owned(),
        PolicyQuestion::Use(OfferKind::Prompts) => "gets prompts".to_owned(),
        PolicyQuestion::Read(row) => format!("reads rows of {row}"),
        PolicyQuestion::Show(tier) => {
            format!("sees columns {}", vocabulary.show[*tier].0.as_str())
        }
        PolicyQuestion::Recall => "reads conversations of others".to_owned(),
        PolicyQuestion::Operator(action) => format!("performs {}", action.as_str()),
    }
}

/// An approver: nobody, the caller (`Some(None)`), or people with a role.
type Approver = Option<Option<String>>;

/// Returns by whom the policies of either set let requests be approved, first nobody. Each of them is a question of its own: an
/// approval is a gain if the request was possible neither with this approval nor without one.
fn approvers(sets: &[cedar::PolicySet; 2]) -> BTreeSet<Approver> {
    let policies = sets.iter().flat_map(cedar::PolicySet::policies);
    let with_approval = policies.filter(|policy| needs_approval(policy));
    let approvers = with_approval.map(|policy| Some(approver_role(policy).map(str::to_owned)));
    std::iter::once(None).chain(approvers).collect()
}

/// Returns the policies that decide if this approver approves the request.
fn with_approver(set: &cedar::PolicySet, approver: Option<&Option<String>>) -> cedar::PolicySet {
    let applies = |policy: &&Policy| {
        !needs_approval(policy) || approver.is_some_and(|it| it.as_deref() == approver_role(policy))
    };
    gather(set.policies().filter(applies).cloned())
}

/// Returns whether both sets declare the same, and the new set checks the type of every argument that the old one checks. Only
/// the types of arguments that a policy reads are checked.
fn has_same_schema(before: &Vocabulary, after: &Vocabulary) -> bool {
    let is_checked = |name| after.argument_types.contains_key(name);
    before.declarations == after.declarations
        && before.counters(OfferKind::Tool) == after.counters(OfferKind::Tool)
        && before.argument_types.keys().all(is_checked)
}
