//! Tests of the whole crate, one file for each topic.

mod approvals;
mod change_management;
mod context;
mod correct_form;
mod decisions;
pub(crate) mod fixture;
mod grpc;
mod history;
pub(crate) mod issuer;
mod loading;
mod operator;
mod oracle;
mod partial_evaluation;
mod proof;
mod reach;
mod recall;
mod reloading;
mod rollout;
pub(crate) mod samples;
mod schema;
mod shadow;
mod typed_arguments;
mod using;
