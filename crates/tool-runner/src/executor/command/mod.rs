//! `type: command`: runs a program without a shell.

mod output;

use std::sync::Arc;

use futures::future::BoxFuture;
use wardgate_catalogue::plan::CommandPlan;
use wardgate_domain::Reason;
use wardgate_sandbox::{KernelSupport, RunError};

use super::{Executor, Invocation, Output};
use crate::executor_error::ExecutorError;
use output::OutputReader;

/// An executor that starts a program for each call and keeps nothing open between calls.
struct CommandExecutor(CommandPlan);

pub(super) fn open(plan: &CommandPlan) -> Arc<dyn Executor> {
    KernelSupport::log();
    #[cfg(unix)]
    if plan.program.limits.processes.is_some() && nix::unistd::Uid::effective().is_root() {
        tracing::warn!(
            "the kernel does not apply `limits.processes` of a command to root: run Wardgate as another user"
        );
    }
    #[cfg_attr(
        not(test),
        expect(unused_mut, reason = "only tests use another launcher")
    )]
    let mut plan = plan.clone();
    #[cfg(test)]
    {
        plan.program.launcher = wardgate_sandbox::testing::launcher();
    }
    Arc::new(CommandExecutor(plan))
}

impl Executor for CommandExecutor {
    fn run<'a>(
        &'a self,
        call: &'a Invocation<'a>,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            let input = self.0.input(call.arguments)?;
            let mut reader = OutputReader::new(self.0.format, self.0.progress, out);
            self.0.program.run(input, &mut reader).await?;
            reader.finish()
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
                kind: Reason::COMMAND_FAILED,
                text: error.to_string(),
                cause: error.to_string(),
            },
        }
    }
}
