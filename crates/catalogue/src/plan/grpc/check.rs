//! Validation of a configured call against the server's descriptors, if these are available when the file is read.

use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};
use wardgate_arguments::InputSchema;
use wardgate_yaml::{Node, Yaml};

use crate::scope::Scope;
use wardgate_grpc_json::{GrpcError, MethodName, field, field_names, has_own_form};

/// Returns the request message of the method.
pub(super) fn method(
    name: &MethodName,
    node: &Node,
    pool: &DescriptorPool,
    scope: &mut Scope<'_, '_>,
) -> Option<MessageDescriptor> {
    let (problem, fix) = match name.find(pool) {
        Ok(method) => return Some(method.input()),
        Err(GrpcError::ClientStreaming(_)) => (
            format!("`{name}` takes a stream of messages, which is not supported"),
            "use a method that takes a single message".to_owned(),
        ),
        Err(_) => (
            format!("the descriptors of the source do not contain the method `{name}`"),
            format!("use one of {}", methods(pool)),
        ),
    };
    scope.faults.add(node.at, problem, fix);
    None
}

fn methods(pool: &DescriptorPool) -> String {
    let names: Vec<_> = pool
        .services()
        .flat_map(|service| {
            let methods: Vec<_> = service.methods().collect();
            let name = service.full_name().to_owned();
            methods
                .into_iter()
                .map(move |method| format!("`{name}/{}`", method.name()))
        })
        .collect();
    names.join(", ")
}

/// Checks that every member of a message's template is a field.
pub(super) fn message(node: &Node, of: &MessageDescriptor, scope: &mut Scope<'_, '_>) {
    let Yaml::Map(entries) = &node.value else {
        return;
    };
    if has_own_form(of) {
        return;
    }
    for (key, node) in entries {
        let Some(field) = field(of, &key.name) else {
            scope.faults.add(
                key.at,
                format!("`{}` has no field `{}`", of.full_name(), key.name),
                format!("use one of {}", field_names(of)),
            );
            continue;
        };
        let Kind::Message(inner) = field.kind() else {
            continue;
        };
        match &node.value {
            Yaml::Map(entries) if field.is_map() => {
                if let Kind::Message(inner) = inner.map_entry_value_field().kind() {
                    for (_, node) in entries {
                        message(node, &inner, scope);
                    }
                }
            }
            Yaml::List(items) => {
                for item in items {
                    message(item, &inner, scope);
                }
            }
            _ => message(node, &inner, scope),
        }
    }
}

/// Checks that every argument is a field, which is required without a message template.
pub(super) fn arguments(of: &MessageDescriptor, node: &Node, scope: &mut Scope<'_, '_>) {
    for property in scope.input.map(InputSchema::properties).unwrap_or_default() {
        if field(of, &property.name).is_none() {
            scope.faults.add(
                node.at,
                format!(
                    "`{}` has no field for the argument `{}`",
                    of.full_name(),
                    property.name
                ),
                format!("use one of {}, or add a `message`", field_names(of)),
            );
        }
    }
}
