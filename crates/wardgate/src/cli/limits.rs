//! Options of `wardgate limits`.

use clap::Args;

use super::{ClientOptions, OutputOptions};

#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    #[command(flatten)]
    pub(crate) operator: ClientOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
