use std::time::Duration;

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, MessageOptions,
};

use super::*;
use crate::bad_descriptors::BadDescriptors;
use crate::descriptors::{MAX_FILES, link};

fn file(name: &str, imports: &[&str]) -> FileDescriptorProto {
    FileDescriptorProto {
        name: Some(name.to_owned()),
        syntax: Some("proto3".to_owned()),
        dependency: imports.iter().map(ToString::to_string).collect(),
        ..FileDescriptorProto::default()
    }
}

fn message(name: &str, fields: Vec<FieldDescriptorProto>) -> DescriptorProto {
    DescriptorProto {
        name: Some(name.to_owned()),
        field: fields,
        ..DescriptorProto::default()
    }
}

fn typed_field(name: &str, number: i32, of: &str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(Type::Message.into()),
        type_name: Some(of.to_owned()),
        ..FieldDescriptorProto::default()
    }
}

fn problem(files: Vec<FileDescriptorProto>) -> String {
    link(files).unwrap_err().to_string()
}

#[test]
fn files_fit_together_in_any_order() {
    let mut files = files().file;
    files.reverse();
    let pool = link(files).unwrap();
    let size = pool.get_message_by_name("sizes.v1.Size").unwrap();
    assert_eq!(size.fields().len(), 2);
}

#[test]
fn public_imports_are_seen_however_long_the_way() {
    let mut last = file("e", &[]);
    last.message_type = vec![message("Far", vec![])];
    let mut files = vec![last];
    for (name, import) in [("d", "e"), ("c", "d"), ("b", "c")] {
        let mut between = file(name, &[import]);
        between.public_dependency = vec![0];
        files.push(between);
    }
    let mut first = file("a", &["b"]);
    first.message_type = vec![message("Near", vec![typed_field("far", 1, ".Far")])];
    files.push(first.clone());
    assert!(link(files.clone()).is_ok());

    files[1].public_dependency.clear();
    assert!(problem(files).contains("do not match"));
}

#[test]
fn imports_in_a_circle_are_refused() {
    let mut pair = vec![file("a", &["b"]), file("b", &["a"])];
    for file in &mut pair {
        file.public_dependency = vec![0];
    }
    assert_eq!(problem(pair), "`a` imports itself, directly or indirectly");
    let own = vec![file("x", &[]), file("a", &["x", "a"])];
    assert_eq!(problem(own), "`a` imports itself, directly or indirectly");
}

#[test]
fn imports_that_fan_out_take_no_time() {
    // Each layer has two files that both import both files of the layer below, so there are 2^200 paths from top to bottom.
    let mut files = vec![file("0a", &[]), file("0b", &[])];
    for layer in 1..200 {
        let below = [format!("{}a", layer - 1), format!("{}b", layer - 1)];
        for half in ["a", "b"] {
            let mut next = file(&format!("{layer}{half}"), &[&below[0], &below[1]]);
            next.public_dependency = vec![0, 1];
            files.push(next);
        }
    }
    let began = std::time::Instant::now();
    assert!(problem(files).contains("more than 20000 imports"));
    assert!(began.elapsed() < Duration::from_mins(1));
}

#[test]
fn a_missing_import_is_named() {
    assert_eq!(
        problem(vec![file("a", &["gone.proto"])]),
        "`a` imports `gone.proto`, which is missing"
    );
}

#[test]
fn too_many_files_or_elements_are_refused() {
    let files: Vec<_> = (0..=MAX_FILES)
        .map(|number| file(&number.to_string(), &[]))
        .collect();
    assert_eq!(problem(files), "there are more than 1000 files");

    let mut many = file("many", &[]);
    many.message_type = (0..50_001)
        .map(|number| message(&format!("M{number}"), vec![]))
        .collect();
    assert_eq!(problem(vec![many]), "there are more than 50000 elements");
}

#[test]
fn long_names_are_counted_as_they_would_be_written_out() {
    // The descriptors have half a megabyte, and four times the limit when each field has its full name.
    let long = "n".repeat(255);
    let mut deep = message(&long, vec![]);
    let number = |number: i32| FieldDescriptorProto {
        name: Some(format!("f{number}")),
        number: Some(number),
        r#type: Some(Type::Bool.into()),
        ..FieldDescriptorProto::default()
    };
    deep.field = (1..=15_000).map(number).collect();
    for _ in 0..20 {
        let mut outer = message(&long, vec![]);
        outer.nested_type = vec![deep];
        deep = outer;
    }
    let mut names = file("names", &[]);
    names.message_type = vec![deep];
    assert!(names.encoded_len() < 500_000);
    assert_eq!(
        problem(vec![names]),
        "there are more than 16777216 bytes of full names"
    );

    let mut package = file("package", &[]);
    package.package = Some("a.".repeat(500_000) + "a");
    assert_eq!(
        problem(vec![package]),
        "`package` contains a name that is not valid in protobuf"
    );
}

#[test]
fn editions_are_refused_in_so_many_words() {
    let mut edition = file("new", &[]);
    edition.syntax = Some("editions".to_owned());
    edition.message_type = vec![message("M", vec![])];
    assert_eq!(
        problem(vec![edition]),
        "`new` is written in a protobuf edition; only proto2 and proto3 are supported"
    );
}

#[test]
fn broken_elements_are_refused() {
    let entry = |fields| {
        let mut broken = file("broken", &[]);
        let mut entry = message("Entry", fields);
        entry.options = Some(MessageOptions {
            map_entry: Some(true),
            ..MessageOptions::default()
        });
        broken.message_type = vec![entry];
        broken
    };
    let scalar = |name: &str, number, of: Type| FieldDescriptorProto {
        r#type: Some(of.into()),
        type_name: None,
        ..typed_field(name, number, "")
    };
    let value = scalar("value", 2, Type::Bool);
    for fields in [
        vec![],
        vec![value.clone()],
        vec![scalar("key", 1, Type::Double), value.clone()],
        vec![typed_field("key", 1, ".Entry"), value.clone()],
        vec![
            scalar("key", 1, Type::String),
            scalar("value", 3, Type::Bool),
        ],
    ] {
        assert_eq!(
            problem(vec![entry(fields)]),
            "`broken` has a map entry without a key and a value"
        );
    }
    assert!(link(vec![entry(vec![scalar("key", 1, Type::String), value])]).is_ok());

    let with = |message: DescriptorProto| {
        let mut broken = file("broken", &[]);
        broken.message_type = vec![message];
        broken
    };
    let mut oneof = scalar("f", 1, Type::Bool);
    oneof.oneof_index = Some(-5);
    let mut empty_enum = message("M", vec![]);
    empty_enum.enum_type = vec![EnumDescriptorProto {
        name: Some("E".to_owned()),
        value: Vec::<EnumValueDescriptorProto>::new(),
        ..EnumDescriptorProto::default()
    }];
    for broken in [
        message("M", vec![typed_field("f", 1, ".Nowhere")]),
        message("M", vec![scalar("f", 0, Type::Bool)]),
        message("M", vec![scalar("f", -1, Type::Bool)]),
        message(
            "M",
            vec![scalar("f", 1, Type::Bool), scalar("f", 1, Type::Bool)],
        ),
        message("M", vec![scalar("f", 1, Type::Message)]),
        message("M", vec![oneof]),
        message(
            "",
            vec![scalar("", 1, Type::Bool), scalar("", 2, Type::Bool)],
        ),
        empty_enum,
    ] {
        let text = problem(vec![with(broken.clone())]);
        assert!(text.contains("do not match"), "{broken:?}: {text}");
    }
    for name in ["a.b", "1a", "a b", "\u{e9}"] {
        let text = problem(vec![with(message(name, vec![]))]);
        assert!(text.contains("not valid in protobuf"), "{name}: {text}");
    }
}

#[test]
fn well_known_types_are_always_our_own() {
    let mut forged = file("google/protobuf/timestamp.proto", &[]);
    forged.package = Some("google.protobuf".to_owned());
    forged.message_type = vec![message("Timestamp", vec![])];
    let pool = link(vec![forged.clone()]).unwrap();
    let time = pool
        .get_message_by_name("google.protobuf.Timestamp")
        .unwrap();
    assert_eq!(time.fields().len(), 2);

    forged.name = Some("elsewhere.proto".to_owned());
    assert!(problem(vec![forged]).contains("do not match"));
}

#[test]
fn bytes_that_are_no_descriptors_are_refused() {
    assert_eq!(
        DescriptorFile::decode(b"\xff\xff").unwrap_err(),
        BadDescriptors::NotDescriptors
    );
    let large = vec![0; 9 << 20];
    assert_eq!(
        DescriptorFile::decode(&large).unwrap_err().to_string(),
        "there are more than 8388608 bytes"
    );
}
