//! The generated parts of grpc.md, from the compiled `.proto` files and the table of methods.

use std::collections::HashMap;
use std::fmt::Write;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, ServiceDescriptorProto,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::{METHODS, Method, RetryPolicy};

use super::{assert_sections_current, cell};

/// Field numbers of `descriptor.proto`, which make up the paths of comments.
mod number {
    pub(super) const MESSAGES: i32 = 4;
    pub(super) const ENUMS: i32 = 5;
    pub(super) const SERVICES: i32 = 6;
    pub(super) const SYNTAX: i32 = 12;
    pub(super) const METHODS_OF_SERVICE: i32 = 2;
    pub(super) const VALUES_OF_ENUM: i32 = 2;
    pub(super) const FIELDS_OF_MESSAGE: i32 = 2;
    pub(super) const MESSAGES_OF_MESSAGE: i32 = 3;
    pub(super) const ENUMS_OF_MESSAGE: i32 = 4;
}

/// A `.proto` file with its comments, by the path of the element that they describe.
struct ProtoFile<'a> {
    descriptor: &'a FileDescriptorProto,
    comments: HashMap<&'a [i32], &'a str>,
}

impl<'a> ProtoFile<'a> {
    fn new(descriptor: &'a FileDescriptorProto) -> Self {
        let locations = descriptor.source_code_info.iter();
        let locations = locations.flat_map(|info| &info.location);
        let comments = locations.filter_map(|location| {
            let comment = location.leading_comments.as_deref()?;
            Some((location.path.as_slice(), comment))
        });
        Self {
            descriptor,
            comments: comments.collect(),
        }
    }

    /// Returns the comment of the element at `path`, with one line for each paragraph.
    fn comment(&self, path: &[i32]) -> String {
        let comment = self.comments.get(path).copied().unwrap_or_default();
        let mut text = String::new();
        for line in comment.lines().map(str::trim) {
            if line.is_empty() {
                text.push('\n');
                continue;
            }
            if !text.is_empty() && !text.ends_with('\n') {
                text.push(' ');
            }
            text += line;
        }
        text.trim_end().to_owned()
    }

    /// Returns the section of the page about the package: its services, messages and enumerations.
    fn section(&self) -> String {
        let package = self.descriptor.package();
        let about = self.comment(&[number::SYNTAX]).replace('\n', "\n\n");
        let mut page = format!("{about}\n");
        for (index, service) in (0..).zip(&self.descriptor.service) {
            self.add_service(&mut page, &[number::SERVICES, index], service);
        }
        for (index, message) in (0..).zip(&self.descriptor.message_type) {
            self.add_message(&mut page, &[number::MESSAGES, index], package, message);
        }
        for (index, values) in (0..).zip(&self.descriptor.enum_type) {
            self.add_enum(&mut page, &[number::ENUMS, index], package, values);
        }
        page
    }

    fn add_service(&self, page: &mut String, path: &[i32], service: &ServiceDescriptorProto) {
        *page +=
            "\n| method | request | response | called by | repeat | |\n|---|---|---|---|---|---|\n";
        for (index, method) in (0..).zip(&service.method) {
            let name = method.name();
            let access = access(&format!(
                "/{}.{}/{name}",
                self.descriptor.package(),
                service.name()
            ));
            let callers: Vec<_> = access.callers.iter().map(|peer| peer.as_str()).collect();
            let repeat = match access.repeat {
                RetryPolicy::Always => "yes",
                RetryPolicy::IfMarked => "with key",
                RetryPolicy::Never => "no",
            };
            let response = type_link(method.output_type());
            let _ = writeln!(
                page,
                "| `{name}` | {} | {}{response} | {} | {repeat} | {} |",
                type_link(method.input_type()),
                if method.server_streaming() {
                    "stream of "
                } else {
                    ""
                },
                callers.join(", "),
                cell(&self.comment(&below(path, number::METHODS_OF_SERVICE, index))),
            );
        }
    }

    /// Adds a message and its nested declarations. Map entries are shown as the type of their field.
    fn add_message(&self, page: &mut String, path: &[i32], scope: &str, message: &DescriptorProto) {
        let name = format!("{scope}.{}", message.name());
        self.add_heading(page, path, &name);
        if message.field.is_empty() {
            *page += "\nIt has no fields.\n";
        } else {
            *page += "\n| field | number | type | |\n|---|---|---|---|\n";
        }
        for (index, field) in (0..).zip(&message.field) {
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} |",
                field.name(),
                field.number(),
                field_type(message, field),
                cell(&self.comment(&below(path, number::FIELDS_OF_MESSAGE, index))),
            );
        }
        for (index, inner) in (0..).zip(&message.nested_type) {
            if !is_map_entry(inner) {
                let path = below(path, number::MESSAGES_OF_MESSAGE, index);
                self.add_message(page, &path, &name, inner);
            }
        }
        for (index, inner) in (0..).zip(&message.enum_type) {
            let path = below(path, number::ENUMS_OF_MESSAGE, index);
            self.add_enum(page, &path, &name, inner);
        }
    }

    fn add_enum(&self, page: &mut String, path: &[i32], scope: &str, values: &EnumDescriptorProto) {
        let name = format!("{scope}.{}", values.name());
        self.add_heading(page, path, &name);
        let of_errors = name == "wardgate.common.v1.ErrorReason";
        *page += if of_errors {
            "\n| value | number | gRPC status | |\n|---|---|---|---|\n"
        } else {
            "\n| value | number | |\n|---|---|---|\n"
        };
        for (index, value) in (0..).zip(&values.value) {
            let status = if of_errors {
                let reason = ErrorReason::from_str_name(value.name()).unwrap();
                let code = wardgate_rpc::code_of(reason);
                format!(" `{}` |", wardgate_rpc::code_name(code))
            } else {
                String::new()
            };
            let _ = writeln!(
                page,
                "| `{}` | {} |{status} {} |",
                value.name(),
                value.number(),
                cell(&self.comment(&below(path, number::VALUES_OF_ENUM, index))),
            );
        }
    }

    fn add_heading(&self, page: &mut String, path: &[i32], name: &str) {
        let _ = write!(page, "\n### {name}\n");
        let comment = self.comment(path).replace('\n', "\n\n");
        if !comment.is_empty() {
            let _ = write!(page, "\n{comment}\n");
        }
    }
}

fn below(path: &[i32], number: i32, index: i32) -> Vec<i32> {
    [path, &[number, index]].concat()
}

/// Returns the access rules of the method at `path`.
fn access(path: &str) -> &'static Method {
    METHODS.iter().find(|method| method.path == path).unwrap()
}

fn is_map_entry(message: &DescriptorProto) -> bool {
    let options = message.options.as_ref();
    options.is_some_and(prost_types::MessageOptions::map_entry)
}

/// Returns the type of a field of `message`, as a `.proto` file writes it.
fn field_type(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let of_map = message.nested_type.iter().find(|inner| {
        let is_its_type = field.type_name().rsplit('.').next() == Some(inner.name());
        is_map_entry(inner) && is_its_type
    });
    if let Some(entry) = of_map {
        let types: Vec<_> = entry.field.iter().map(value_type).collect();
        return format!("map of {}", types.join(" to "));
    }
    let value = value_type(field);
    if field.label() == Label::Repeated {
        return format!("repeated {value}");
    }
    if field.proto3_optional() {
        return format!("optional {value}");
    }
    match field.oneof_index.map(usize::try_from) {
        Some(Ok(index)) => format!("{value}, one of `{}`", message.oneof_decl[index].name()),
        Some(Err(_)) | None => value,
    }
}

fn value_type(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => type_link(field.type_name()),
        scalar => {
            let name = scalar.as_str_name().trim_start_matches("TYPE_");
            format!("`{}`", name.to_lowercase())
        }
    }
}

/// Returns a link to a message or an enumeration of this project, or the name of one of Google's.
fn type_link(name: &str) -> String {
    let name = name.trim_start_matches('.');
    let short = name.rsplit('.').next().unwrap_or(name);
    if name.starts_with("wardgate.") {
        let anchor = name.replace('.', "").to_lowercase();
        format!("[{short}](#{anchor})")
    } else {
        format!("`{name}`")
    }
}

#[test]
fn the_page_of_every_grpc_service_is_current() {
    let set = FileDescriptorSet::decode(wardgate_proto::DESCRIPTORS).unwrap();
    let files = set.file.iter();
    let ours = files.filter(|file| file.package().starts_with("wardgate."));
    let sections: Vec<_> = ours
        .map(|file| {
            let package = file.package().to_owned();
            (package, ProtoFile::new(file).section())
        })
        .collect();
    assert_sections_current("grpc.md", &sections);
}
