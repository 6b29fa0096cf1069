//! The options of `wardgate conversations`.

use std::path::PathBuf;

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
    /// List conversations with their owner, start and number of messages.
    List(ListOptions),
    /// Export the complete list as JSON, one object per line.
    Export {
        #[command(flatten)]
        whose: OwnerFilter,
        #[command(flatten)]
        operator: OperatorSignIn,
        #[command(flatten)]
        system: RunningSystem,
    },
    /// Erase a conversation by destroying its key. The audit log records the operator.
    Erase {
        /// Key of the conversation, as shown by `list`.
        key: ConversationKey,
        #[command(flatten)]
        operator: OperatorSignIn,
        #[command(flatten)]
        system: RunningSystem,
    },
    /// Move all conversations from a former master key to the current one, while the services run with both keys. After an
    /// interruption, run the command again.
    Rekey(RekeyOptions),
    /// Put a legal hold on conversations, which prevents their erasure and removal by retention.
    Hold(HoldChange),
    /// Lift a legal hold.
    Release(HoldChange),
    /// List legal holds.
    Holds {
        #[command(flatten)]
        operator: OperatorSignIn,
        #[command(flatten)]
        system: RunningSystem,
        #[command(flatten)]
        output: OutputOptions,
    },
}

/// The store and the keys to use. Both are needed, since no service gives a key away.
#[derive(Debug, Args)]
pub(crate) struct RekeyOptions {
    /// Data directory of `wardgate up`, with `keys/memory-former.key`.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
    /// Path of a configuration file whose section `memory` names the store, `master_key_file` and `former_master_key_files`.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    #[command(flatten)]
    pub(crate) whose: OwnerFilter,
    #[command(flatten)]
    pub(crate) operator: OperatorSignIn,
    #[command(flatten)]
    pub(crate) system: RunningSystem,
    /// Maximum number of conversations to print, newest first.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// The owners of the conversations.
#[derive(Debug, Args)]
pub(crate) struct OwnerFilter {
    /// Only conversations of this tenant.
    #[arg(long, value_name = "TENANT", default_value = "")]
    pub(crate) tenant: String,
    /// Only conversations of this subject.
    #[arg(long, value_name = "SUB", default_value = "")]
    pub(crate) user: String,
}

/// The scope of a hold: one conversation, a user or a tenant.
#[derive(Debug, Args)]
pub(crate) struct HoldChange {
    /// Key of the conversation.
    #[arg(required_unless_present_any = ["user", "tenant"], conflicts_with_all = ["user", "tenant"])]
    pub(crate) key: Option<ConversationKey>,
    /// All conversations of this subject.
    #[arg(long, value_name = "SUB")]
    pub(crate) user: Option<String>,
    /// All conversations of this tenant; with --user, the tenant of the subject.
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) operator: OperatorSignIn,
    #[command(flatten)]
    pub(crate) system: RunningSystem,
}
