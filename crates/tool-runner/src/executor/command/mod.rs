//! `type: command`: a program, run without a shell.

mod argv;
mod output;
mod read;

use std::sync::Arc;

use futures::future::BoxFuture;
use nix::unistd::Uid;
use serde_json::{Map, Value};
use tracing::warn;
use wardgate_sandbox::{KernelSupport, Program, RunError, RunInput};

use super::{Executor, ExecutorError, Invocation, Kind, Output, Plan, Sources};
use crate::Error;
use crate::catalogue::{Template, UnfitValue};
use argv::Argv;
use output::{Format, Reader};

pub(super) const KIND: Kind = Kind {
    name: "command",
    read: read::read,
};

/// A checked command, and what runs it: a program keeps nothing open between calls.
#[derive(Debug, Clone)]
struct Command {
    program: Program,
    argv: Argv,
    /// The whole environment.
    environment: Vec<(String, Template)>,
    stdin: Option<Template>,
    format: Format,
    /// Whether lines of standard error are told as progress.
    progress: bool,
}

impl Plan for Command {
    fn columns(&self) -> Option<Vec<String>> {
        self.format.column().map(|column| vec![column.to_owned()])
    }

    fn open(&self, _: &Sources) -> Result<Arc<dyn Executor>, Error> {
        KernelSupport::log();
        if self.program.limits.processes.is_some() && Uid::effective().is_root() {
            warn!(
                "the kernel excepts root from `limits.processes` of a command: run Wardgate as another user"
            );
        }
        Ok(Arc::new(self.clone()))
    }
}

impl Executor for Command {
    fn run<'a>(
        &'a self,
        call: &'a Invocation<'a>,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            let input = self.input(call.arguments)?;
            let mut reader = Reader::new(self.format, self.progress, out);
            self.program.run(input, &mut reader).await?;
            reader.finish()
        })
    }
}

impl Command {
    fn input(&self, values: &Map<String, Value>) -> Result<RunInput, UnfitValue> {
        let environment = self.environment.iter().map(|(name, template)| {
            let text = template.fill_plain(values)?;
            if text.contains('\0') {
                let place = template.places().next();
                return Err(UnfitValue {
                    argument: place.map(|place| place.name.clone()).unwrap_or_default(),
                    problem: "must not hold a NUL character",
                });
            }
            Ok((name.clone(), text))
        });
        let stdin = self.stdin.as_ref().map(|text| text.fill_plain(values));
        Ok(RunInput {
            words: self.argv.fill(values)?,
            environment: environment.collect::<Result<_, _>>()?,
            stdin: stdin.transpose()?,
        })
    }
}

impl From<RunError> for ExecutorError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::ArgumentsTooLong => Self::BadArgument {
                text: error.to_string(),
            },
            RunError::NotStarted(cause) => Self::Unreachable(cause.to_string()),
            RunError::Broken(cause) => Self::Broken(cause.to_string()),
            RunError::TooLarge => Self::TooLarge,
            RunError::Failed(_) => Self::Refused {
                kind: "command_failed",
                text: error.to_string(),
                cause: error.to_string(),
            },
        }
    }
}

#[cfg(test)]
mod tests;
