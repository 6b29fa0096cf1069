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
    /// Show a waiting call: its caller, tool and arguments.
    Show {
        #[command(flatten)]
        about: ApprovalOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Approve a call: it may run once, with exactly these arguments.
    Approve(ApprovalOptions),
    /// Refuse a call.
    Refuse(ApprovalOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ApprovalOptions {
    /// Id of the approval request.
    pub(crate) id: ApprovalId,
    #[command(flatten)]
    pub(crate) approver: ClientOptions,
}
