//! Options of `wardgate init`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Where to make it: a directory that is empty or not there yet.
    pub(crate) directory: PathBuf,
}
