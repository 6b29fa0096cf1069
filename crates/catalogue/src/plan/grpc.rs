//! `type: grpc`: sends one message to a method of a gRPC server.

mod check;

use wardgate_grpc_json::MethodName;

use super::{Plan, PlanSource, SentArguments};
use crate::fault::FieldReader;
use crate::scope::Scope;
use crate::source::SourceKind;

/// A gRPC call with placeholders.
#[derive(Debug, Clone)]
pub struct GrpcPlan {
    /// The server.
    pub source: PlanSource,
    /// The method.
    pub method: MethodName,
    /// The message.
    pub message: SentArguments,
}

pub(super) fn read_plan(fields: &mut FieldReader<'_>, scope: &mut Scope<'_, '_>) -> Option<Plan> {
    let source = fields.take_required("source", "use one of `sources`", scope.faults);
    let fix = "write it like `package.Service/Method`";
    let method_node = fields.take_required("method", fix, scope.faults);
    let message_node = fields.take_optional("message");
    let source = source.and_then(|node| {
        let settings = scope.source(node)?;
        let SourceKind::Grpc(grpc) = &settings.kind else {
            scope.wrong_source(node, "a gRPC server");
            return None;
        };
        Some((PlanSource::new(&settings.name, Some(&grpc.auth)), grpc))
    });
    let method_node = method_node?;
    let method = scope
        .faults
        .text(method_node, "method")?
        .parse::<MethodName>();
    if method.is_err() {
        let problem = "`method` is not a method name";
        scope.faults.add(method_node.at, problem, fix);
    }
    let message = SentArguments::from_node(message_node, scope);
    let ((source, settings), method) = (source?, method.ok()?);
    if let Some(descriptors) = &settings.descriptors {
        let input = check::method(&method, method_node, descriptors.pool(), scope)?;
        match message_node {
            Some(node) => check::message(node, &input, scope),
            None => check::arguments(&input, method_node, scope),
        }
    }
    Some(Plan::Grpc(GrpcPlan {
        source,
        method,
        message,
    }))
}
