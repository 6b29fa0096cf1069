//! The options of `wardgate conversations`.

use clap::{Args, Subcommand};
use wardgate_domain::ConversationKey;

use super::{OperatorSignIn, OutputOptions, RunningSystem};

#[derive(Debug, Args)]
pub(crate) struct ConversationsArgs {
    #[command(subcommand)]
    pub(crate) command: ConversationsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConversationsCommand {
    /// Whose conversations there are, since when, and how many messages each has.
    List(ListOptions),
    /// The same as JSON, one object a line, all of them.
    Export {
        #[command(flatten)]
        whose: OwnerFilter,
        #[command(flatten)]
        operator: OperatorSignIn,
        #[command(flatten)]
        system: RunningSystem,
    },
    /// Erase a conversation: its key is destroyed, and the record says by whom.
    Erase {
        /// Its key, as `list` shows it.
        key: ConversationKey,
        #[command(flatten)]
        operator: OperatorSignIn,
        #[command(flatten)]
        system: RunningSystem,
    },
    /// Put a legal hold on conversations: they are neither erased nor ended by retention.
    Hold(HoldChange),
    /// Lift a legal hold.
    Release(HoldChange),
    /// Print the holds.
    Holds {
        #[command(flatten)]
        operator: OperatorSignIn,
        #[command(flatten)]
        system: RunningSystem,
        #[command(flatten)]
        output: OutputOptions,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    #[command(flatten)]
    pub(crate) whose: OwnerFilter,
    #[command(flatten)]
    pub(crate) operator: OperatorSignIn,
    #[command(flatten)]
    pub(crate) system: RunningSystem,
    /// Print at most so many, newest first.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// Whose conversations.
#[derive(Debug, Args)]
pub(crate) struct OwnerFilter {
    /// Only of this tenant.
    #[arg(long, value_name = "TENANT", default_value = "")]
    pub(crate) tenant: String,
    /// Only of this subject.
    #[arg(long, value_name = "SUB", default_value = "")]
    pub(crate) user: String,
}

/// What a hold is on: one conversation, a person, or a tenant.
#[derive(Debug, Args)]
pub(crate) struct HoldChange {
    /// Key of a conversation.
    #[arg(required_unless_present_any = ["user", "tenant"], conflicts_with_all = ["user", "tenant"])]
    pub(crate) key: Option<ConversationKey>,
    /// Everything of this subject.
    #[arg(long, value_name = "SUB")]
    pub(crate) user: Option<String>,
    /// Everything of this tenant; with --user, the tenant of the subject.
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) operator: OperatorSignIn,
    #[command(flatten)]
    pub(crate) system: RunningSystem,
}
