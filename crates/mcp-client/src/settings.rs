//! The location of an upstream server.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use wardgate_egress::HttpSettings;

/// The two transports of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A program that is started.
    Stdio(Program),
    /// A server at a URL.
    Http(Box<HttpSettings>),
}

/// A program that speaks MCP on its standard streams. Its environment consists of PATH, HOME and `env`, which may contain
/// secrets and is never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Environment variables in addition to PATH and HOME.
    pub env: BTreeMap<String, String>,
    /// The working directory.
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
