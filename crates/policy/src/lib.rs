//! The policy service, which decides who may call which tool and signs permits for allowed calls.
//!
//! ```text
//!   *.cedar, *.cedarschema ──load: limits → parse → validate → try──▶ PolicySet
//!                                                                        │ swapped whole, never in part
//!   Authorize(token, tool, arguments) ──verify the token──▶ caller
//!                                                │
//!                                         may they call?  ── no ──▶ Decision: a reason and policy ids
//!                                                │ yes
//!                       which rows? (residual of `read`)
//!                       which columns? (`show_*`, per class) ──▶ Permit, signed
//! ```
//!
//! The files come from a directory, or from a signed bundle, which is verified and tested before.
//!
//! A permit can be verified by its signature alone, so a service that runs a call need not trust the service that
//! delivers the permit. Cedar provides the policy language and the evaluation. This crate adds what a deployment needs
//! in addition: validation of files before they take effect, conversion of callers and tools to Cedar entities, and a
//! denial whenever anything goes wrong.

mod access_question;
mod approval;
mod arguments;
mod authorizer;
mod call;
mod candidate;
mod columns;
mod comparison;
mod compile;
mod config;
mod context;
mod correct_form;
mod denial;
mod engine;
mod entities;
mod error;
mod explanation;
mod fault;
mod files;
mod history;
mod limits;
mod lint;
mod operator;
mod policy_test;
mod reach;
mod recall;
mod reload;
mod replay;
mod residual;
mod rollout;
mod rows;
mod schema;
mod schema_shape;
mod service;
mod set;
mod shadow;
mod simulator;
mod trial;
mod vocabulary;

#[cfg(test)]
mod tests;

pub use comparison::{
    AccessChange, Comparison, NoGainProof, ProofObstacle, UnprovedQuestion, compare, prove_no_gain,
};
pub use config::{Config, ShadowConfig};
pub use context::{CallContext, parse_client_ip, parse_time};
pub use error::{BundleRefusal, Error, Finding, Findings, Position};
pub use explanation::{ExplainedCondition, ExplainedPolicy, Explanation};
pub use history::{CallCounts, CallHistory};
pub use policy_test::{
    CallerSample, TestFile, TestReport, run_tests, sample_caller, test_files, tier_word,
};
pub use reach::Advice;
pub use replay::{ReplayedCall, ReplayedRights};
pub use rollout::try_bundle;
pub use service::service;
pub use set::{PolicyLocation, PolicySet};
pub use simulator::{PartDecision, SimulatedAccess, SimulatedCall, Simulation, Simulator};
pub use wardgate_caller_lookup::{LookupConfig, probe as probe_caller_lookup};
pub use wardgate_policy_bundle::BundleConfig;
