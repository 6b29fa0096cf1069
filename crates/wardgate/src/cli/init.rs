//! Options of `wardgate init`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Project directory: empty, or not existing yet.
    pub(crate) directory: PathBuf,
}
