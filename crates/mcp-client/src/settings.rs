//! Where an upstream server is.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use wardgate_egress::HttpSettings;

/// The two transports of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A program.
    Stdio(Program),
    /// A URL.
    Http(Box<HttpSettings>),
}

/// A program that speaks MCP on its standard streams. Its environment holds PATH, HOME and `env`, which
/// can be secret and is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Besides PATH and HOME.
    pub env: BTreeMap<String, String>,
    /// Where it runs.
    pub directory: PathBuf,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("program", &self.argv.first())
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}
