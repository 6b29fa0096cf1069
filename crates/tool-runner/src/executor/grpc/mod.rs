//! `type: grpc`: sends one message to a method of a gRPC server. Each answer is a document.

use std::ops::ControlFlow;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::json;
use tonic::Code;
use wardgate_catalogue::plan::GrpcPlan;
use wardgate_domain::Reason;
use wardgate_egress::OnBehalf;
use wardgate_grpc_json::{GrpcError, GrpcServer};
use wardgate_rpc::code_name;

use super::{Executor, Invocation, Output, Sources};
use crate::Error;
use crate::executor_error::{ExecutorError, TimeLimit};

pub(super) fn open(plan: &GrpcPlan, sources: &Sources) -> Result<Arc<dyn Executor>, Error> {
    Ok(Arc::new(GrpcExecutor {
        server: sources.grpc(&plan.source.name)?,
        plan: plan.clone(),
    }))
}

struct GrpcExecutor {
    server: Arc<GrpcServer>,
    plan: GrpcPlan,
}

impl Executor for GrpcExecutor {
    fn run<'a>(
        &'a self,
        call: &'a Invocation<'a>,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            let message = self.plan.message.fill(call.arguments)?;
            let caller = Some(OnBehalf::from_caller(call.caller, call.caller_token));
            let answers = self
                .server
                .call(&self.plan.method, &message, caller, call.deadline);
            let mut answers = answers.await.map_err(|error| failure(error, out))?;
            while let Some(document) = answers.next().await.map_err(|error| failure(error, out))? {
                if out.document(document)? == ControlFlow::Break(()) {
                    break;
                }
            }
            Ok(())
        })
    }
}

/// Converts the error of a failed call. The status of the server becomes a document, so that `result.error` decides
/// whether and where the server's own words are released.
fn failure(error: GrpcError, out: &Output<'_>) -> ExecutorError {
    let cause = error.to_string();
    let refused = |kind, text: &str| ExecutorError::Refused {
        kind,
        text: text.to_owned(),
        cause: cause.clone(),
    };
    match error {
        GrpcError::Unreachable(cause) | GrpcError::Setup(cause) => {
            ExecutorError::Unreachable(cause)
        }
        GrpcError::Timeout => ExecutorError::Timeout(TimeLimit::Call),
        GrpcError::ServerTimeout => ExecutorError::Timeout(TimeLimit::Unstated),
        GrpcError::Broken(cause) => ExecutorError::Broken(cause),
        GrpcError::TooLarge => ExecutorError::TooLarge,
        GrpcError::BadAnswer(problem) => ExecutorError::BadResult(problem.to_owned()),
        GrpcError::Misfit(misfit) => ExecutorError::BadArgument {
            text: misfit.to_string(),
        },
        GrpcError::RequestTooLarge(_) => ExecutorError::BadArgument { text: cause },
        GrpcError::Auth(error) => error.into(),
        GrpcError::Undescribed(_) => refused(
            Reason::BAD_DESCRIPTORS,
            "the service does not describe its methods",
        ),
        GrpcError::NoMethod(_) => refused(Reason::UNKNOWN_METHOD, "the service has no such method"),
        GrpcError::ClientStreaming(_) => refused(
            Reason::UNKNOWN_METHOD,
            "the service's method takes a stream of messages, which is not supported",
        ),
        GrpcError::Status { code, message } => {
            let name = code_name(code);
            let text = format!("the service answered {name}");
            if matches!(code, Code::ResourceExhausted | Code::Unavailable) {
                return ExecutorError::Unavailable { text, pause: None };
            }
            let status = json!({ "error": { "code": name, "message": message } });
            out.reported_error(&status)
                .unwrap_or_else(|| refused(Reason::GRPC_STATUS, &text))
        }
    }
}

#[cfg(test)]
mod tests;
