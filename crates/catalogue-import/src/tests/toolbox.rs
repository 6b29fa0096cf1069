use super::render_snapshot;
use crate::toolbox;

#[test]
fn the_form_with_maps_is_imported_as_it_stands() {
    let imported = toolbox(include_str!("fixtures/toolbox_maps.yaml")).unwrap();
    assert!(
        !render_snapshot(&imported).contains("pl@in"),
        "a password is no part of the file"
    );
    insta::assert_snapshot!(render_snapshot(&imported));
}

#[test]
fn the_form_with_documents_is_imported_as_it_stands() {
    let imported = toolbox(include_str!("fixtures/toolbox_documents.yaml")).unwrap();
    insta::assert_snapshot!(render_snapshot(&imported));
}

#[test]
fn a_file_without_a_tool_of_sql_is_refused_with_the_reasons() {
    let error = toolbox("tools: { x: { kind: http, source: y } }")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("tool `x`: omitted: its type `http`"),
        "{error}"
    );
}
