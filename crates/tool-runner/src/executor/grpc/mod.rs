//! `type: grpc`: one message to a method of a gRPC server, its answers as documents.

mod check;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use tonic::Code;
use wardgate_rpc::code_name;

use super::{Executor, ExecutorError, Flow, Invocation, Kind, Output, Plan, Sources, TimeLimit};
use crate::Error;
use crate::catalogue::{Fields, JsonTemplate, Scope, SourceKind, UnfitValue};
use wardgate_egress::OnBehalf;
use wardgate_grpc_json::{GrpcError, GrpcServer, MethodName};

pub(super) const KIND: Kind = Kind { name: "grpc", read };

/// A call with placeholders.
#[derive(Debug, Clone)]
struct GrpcPlan {
    source: String,
    exchanges_token: bool,
    stands_for_caller: bool,
    method: MethodName,
    message: Message,
}

#[derive(Debug, Clone)]
enum Message {
    /// As configured.
    Template(JsonTemplate),
    /// All arguments but these, which are derived.
    Arguments { derived: Vec<String> },
}

fn read(fields: &mut Fields<'_>, scope: &mut Scope<'_, '_>) -> Option<Box<dyn Plan>> {
    let source = fields.required("source", "name one of `sources`", scope.faults);
    let fix = "name one like `package.Service/Method`";
    let method_node = fields.required("method", fix, scope.faults);
    let message_node = fields.optional("message");
    let source = source.and_then(|node| {
        let settings = scope.source(node)?;
        let SourceKind::Grpc(grpc) = &settings.kind else {
            scope.wrong_source(node, "a gRPC server");
            return None;
        };
        Some((settings.name.clone(), grpc))
    });
    let method_node = method_node?;
    let method = scope
        .faults
        .text(method_node, "method")?
        .parse::<MethodName>();
    if method.is_err() {
        let problem = "`method` is no name of a method";
        scope.faults.add(method_node.at, problem, fix);
    }
    let message = match message_node {
        Some(node) => Message::Template(scope.json_template(node)),
        None => Message::Arguments {
            derived: scope.derive.names().map(str::to_owned).collect(),
        },
    };
    let ((source, settings), method) = (source?, method.ok()?);
    if let Some(descriptors) = &settings.descriptors {
        let input = check::method(&method, method_node, descriptors.pool(), scope)?;
        match message_node {
            Some(node) => check::message(node, &input, scope),
            None => check::arguments(&input, method_node, scope),
        }
    }
    Some(Box::new(GrpcPlan {
        source,
        exchanges_token: settings.auth.exchange_token(),
        stands_for_caller: settings.auth.stand_for_caller(),
        method,
        message,
    }))
}

impl Plan for GrpcPlan {
    fn source(&self) -> Option<&str> {
        Some(&self.source)
    }

    fn needs_caller_token(&self) -> bool {
        self.exchanges_token
    }

    fn stands_for_caller(&self) -> bool {
        self.stands_for_caller
    }

    fn open(&self, sources: &Sources) -> Result<Arc<dyn Executor>, Error> {
        Ok(Arc::new(GrpcExecutor {
            server: sources.grpc(&self.source)?,
            method: self.method.clone(),
            message: self.message.clone(),
        }))
    }
}

impl Message {
    fn fill(&self, arguments: &Map<String, Value>) -> Result<Value, UnfitValue> {
        match self {
            Self::Template(template) => {
                let filled = template.fill(arguments)?;
                Ok(filled.unwrap_or_else(|| json!({})))
            }
            Self::Arguments { derived } => {
                let mut message = arguments.clone();
                message.retain(|name, _| !derived.contains(name));
                Ok(Value::Object(message))
            }
        }
    }
}

struct GrpcExecutor {
    server: Arc<GrpcServer>,
    method: MethodName,
    message: Message,
}

impl Executor for GrpcExecutor {
    fn run<'a>(
        &'a self,
        call: &'a Invocation<'a>,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            let message = self.message.fill(call.arguments)?;
            let caller = Some(OnBehalf::of(call.caller, call.caller_token));
            let answers = self
                .server
                .call(&self.method, &message, caller, call.deadline);
            let mut answers = answers.await.map_err(|error| failure(error, out))?;
            while let Some(document) = answers.next().await.map_err(|error| failure(error, out))? {
                if out.document(document)? == Flow::Enough {
                    break;
                }
            }
            Ok(())
        })
    }
}

/// What a failed call is to the caller. The server's own words are a document, so that `result.error` says
/// whether and where they are released.
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
        GrpcError::Broken(cause) => ExecutorError::Broken(cause),
        GrpcError::TooLarge => ExecutorError::TooLarge,
        GrpcError::BadAnswer(problem) => ExecutorError::BadResult(problem.to_owned()),
        GrpcError::Misfit(misfit) => ExecutorError::BadArgument {
            text: misfit.to_string(),
        },
        GrpcError::RequestTooLarge(_) => ExecutorError::BadArgument { text: cause },
        GrpcError::Auth(error) => error.into(),
        GrpcError::Undescribed(_) => refused(
            "bad_descriptors",
            "the service does not describe its methods",
        ),
        GrpcError::NoMethod(_) => refused("unknown_method", "the service has no such method"),
        GrpcError::ClientStreaming(_) => refused(
            "unknown_method",
            "the service's method takes a stream of messages",
        ),
        GrpcError::Status { code, message } => {
            let name = code_name(code);
            let text = format!("the service answered {name}");
            if matches!(code, Code::ResourceExhausted | Code::Unavailable) {
                return ExecutorError::Unavailable { text, pause: None };
            }
            let status = json!({ "error": { "code": name, "message": message } });
            out.reported(&status)
                .unwrap_or_else(|| refused("grpc_status", &text))
        }
    }
}

#[cfg(test)]
mod tests;
