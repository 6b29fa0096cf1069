//! Options of `wardgate approvals`.

use clap::{Args, Subcommand};
use wardgate_domain::ApprovalId;

use super::{ClientOptions, OutputOptions};

#[derive(Debug, Args)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    pub(crate) command: ApprovalsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the calls that wait for your approval.
    List {
        #[command(flatten)]
        approver: ClientOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Show one of them: who calls which tool, with which arguments.
    Show {
        #[command(flatten)]
        about: ApprovalOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Let it be made, once, with exactly these arguments.
    Approve(ApprovalOptions),
    /// Refuse it.
    Refuse(ApprovalOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ApprovalOptions {
    /// The id of the request.
    pub(crate) id: ApprovalId,
    #[command(flatten)]
    pub(crate) approver: ClientOptions,
}
