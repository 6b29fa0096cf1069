//! Reduction of descriptor files to what the conversion to JSON needs, and limits on the cost of linking them.
//!
//! A server may describe itself with anything. Linking writes out the full name of every element and compares elements
//! with ranges and options, so a few megabytes of descriptors could cost gigabytes and minutes. Therefore names are
//! counted as they will be written out, and everything that the conversion does not use (options, extensions, reserved
//! ranges, defaults, comments) is removed.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumOptions, EnumValueDescriptorProto,
    FieldDescriptorProto, FileDescriptorProto, MessageOptions, MethodDescriptorProto,
    OneofDescriptorProto, ServiceDescriptorProto,
};

use super::bad_descriptors::BadDescriptors;

const MAX_ELEMENTS: usize = 50_000;
const MAX_FULL_NAME_BYTES: usize = 16 << 20;
const MAX_NAME: usize = 255;
const MAX_PACKAGE: usize = 511;
const MAX_TYPE_NAME: usize = 1023;

/// The remainder of the limits, which apply to all files that are linked together.
pub(super) struct DescriptorTrimmer {
    elements: usize,
    full_name_bytes: usize,
    file: String,
}

type Result<T> = std::result::Result<T, BadDescriptors>;

impl DescriptorTrimmer {
    pub(super) fn new() -> Self {
        Self {
            elements: MAX_ELEMENTS,
            full_name_bytes: MAX_FULL_NAME_BYTES,
            file: String::new(),
        }
    }

    /// Returns `file` as it will be linked, with its imports unchanged.
    pub(super) fn file(&mut self, file: FileDescriptorProto) -> Result<FileDescriptorProto> {
        file.name().clone_into(&mut self.file);
        let syntax = match file.syntax() {
            "" | "proto2" => "proto2",
            "proto3" => "proto3",
            _ => return Err(BadDescriptors::Editions(self.file.clone())),
        };
        let package = file.package();
        let names = package.split('.');
        if package.len() > MAX_PACKAGE || !package.is_empty() && !names.clone().all(is_identifier) {
            return Err(BadDescriptors::Name(self.file.clone()));
        }
        let scope = NameScope::default().within(package);
        for _ in names {
            self.charge_element(scope, "")?;
        }
        Ok(FileDescriptorProto {
            name: Some(self.file.clone()),
            syntax: Some(syntax.to_owned()),
            message_type: self.trim_all(file.message_type, scope, Self::message)?,
            enum_type: self.trim_all(file.enum_type, scope, Self::enumeration)?,
            service: self.trim_all(file.service, scope, Self::service)?,
            package: file.package,
            dependency: file.dependency,
            public_dependency: file.public_dependency,
            ..FileDescriptorProto::default()
        })
    }

    fn message(&mut self, message: DescriptorProto, scope: NameScope) -> Result<DescriptorProto> {
        self.charge_element(scope, message.name())?;
        let scope = scope.within(message.name());
        let map_entry = message.options.as_ref().and_then(|all| all.map_entry);
        if map_entry == Some(true) && !is_map_entry(&message) {
            return Err(BadDescriptors::MapEntry(self.file.clone()));
        }
        Ok(DescriptorProto {
            field: self.trim_all(message.field, scope, Self::field)?,
            nested_type: self.trim_all(message.nested_type, scope, Self::message)?,
            enum_type: self.trim_all(message.enum_type, scope, Self::enumeration)?,
            oneof_decl: self.trim_all(message.oneof_decl, scope, Self::oneof)?,
            options: map_entry.map(|_| MessageOptions {
                map_entry,
                ..MessageOptions::default()
            }),
            name: message.name,
            ..DescriptorProto::default()
        })
    }

    fn field(
        &mut self,
        field: FieldDescriptorProto,
        scope: NameScope,
    ) -> Result<FieldDescriptorProto> {
        self.charge_element(scope, field.name())?;
        if field.type_name().len() > MAX_TYPE_NAME || field.json_name().len() > MAX_NAME {
            return Err(BadDescriptors::Name(self.file.clone()));
        }
        Ok(FieldDescriptorProto {
            options: None,
            default_value: None,
            extendee: None,
            ..field
        })
    }

    fn oneof(
        &mut self,
        oneof: OneofDescriptorProto,
        scope: NameScope,
    ) -> Result<OneofDescriptorProto> {
        self.charge_element(scope, oneof.name())?;
        Ok(OneofDescriptorProto {
            name: oneof.name,
            options: None,
        })
    }

    fn enumeration(
        &mut self,
        enumeration: EnumDescriptorProto,
        scope: NameScope,
    ) -> Result<EnumDescriptorProto> {
        self.charge_element(scope, enumeration.name())?;
        Ok(EnumDescriptorProto {
            // The names of values are in the scope around their enum.
            value: self.trim_all(enumeration.value, scope, Self::value)?,
            options: enumeration.options.map(|all| EnumOptions {
                allow_alias: all.allow_alias,
                ..EnumOptions::default()
            }),
            name: enumeration.name,
            ..EnumDescriptorProto::default()
        })
    }

    fn value(
        &mut self,
        value: EnumValueDescriptorProto,
        scope: NameScope,
    ) -> Result<EnumValueDescriptorProto> {
        self.charge_element(scope, value.name())?;
        Ok(EnumValueDescriptorProto {
            options: None,
            ..value
        })
    }

    fn service(
        &mut self,
        service: ServiceDescriptorProto,
        scope: NameScope,
    ) -> Result<ServiceDescriptorProto> {
        self.charge_element(scope, service.name())?;
        let scope = scope.within(service.name());
        Ok(ServiceDescriptorProto {
            method: self.trim_all(service.method, scope, Self::method)?,
            name: service.name,
            options: None,
        })
    }

    fn method(
        &mut self,
        method: MethodDescriptorProto,
        scope: NameScope,
    ) -> Result<MethodDescriptorProto> {
        self.charge_element(scope, method.name())?;
        if method.input_type().len().max(method.output_type().len()) > MAX_TYPE_NAME {
            return Err(BadDescriptors::Name(self.file.clone()));
        }
        Ok(MethodDescriptorProto {
            options: None,
            ..method
        })
    }

    fn trim_all<T>(
        &mut self,
        elements: Vec<T>,
        scope: NameScope,
        trim: fn(&mut Self, T, NameScope) -> Result<T>,
    ) -> Result<Vec<T>> {
        elements
            .into_iter()
            .map(|element| trim(self, element, scope))
            .collect()
    }

    /// Charges the budget for an element whose full name is `scope` and `name`.
    fn charge_element(&mut self, scope: NameScope, name: &str) -> Result<()> {
        if !name.is_empty() && !is_identifier(name) {
            return Err(BadDescriptors::Name(self.file.clone()));
        }
        let left = self.elements.checked_sub(1);
        self.elements = left.ok_or(BadDescriptors::TooMany("elements", MAX_ELEMENTS))?;
        let left = self.full_name_bytes.checked_sub(scope.bytes + name.len());
        self.full_name_bytes = left.ok_or(BadDescriptors::TooMany(
            "bytes of full names",
            MAX_FULL_NAME_BYTES,
        ))?;
        Ok(())
    }
}

/// The length of the prefix of full names in a scope.
#[derive(Clone, Copy, Default)]
struct NameScope {
    bytes: usize,
}

impl NameScope {
    fn within(self, name: &str) -> Self {
        Self {
            bytes: self.bytes + name.len() + 1,
        }
    }
}

/// Returns whether `name` is an identifier without dots and of reasonable length.
pub(super) fn is_identifier(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

/// Returns whether the message is a valid map entry, because conversions rely on its two fields and on the type of its key.
fn is_map_entry(message: &DescriptorProto) -> bool {
    let single = |number, name| {
        message.field.iter().find(|field| {
            field.number() == number && field.name() == name && field.label() != Label::Repeated
        })
    };
    let key = single(1, "key").is_some_and(|key| {
        key.type_name().is_empty()
            && !matches!(
                key.r#type(),
                Type::Double | Type::Float | Type::Bytes | Type::Group | Type::Message | Type::Enum
            )
    });
    key && single(2, "value").is_some() && message.field.len() == 2
}
