use serde_json::json;

use super::render_snapshot;
use crate::{ImportError, ImportedCatalogue, OpenapiOptions};

fn openapi(text: &str, base_url: Option<&str>) -> Result<ImportedCatalogue, ImportError> {
    let options = OpenapiOptions {
        base_url: base_url.map(str::to_owned),
        ..OpenapiOptions::default()
    };
    crate::openapi(text, &options)
}

const PETSTORE: &str = include_str!("fixtures/petstore.yaml");

#[test]
fn a_petstore_becomes_tools_that_a_person_can_review() {
    insta::assert_snapshot!(render_snapshot(&openapi(PETSTORE, None).unwrap()));
}

#[test]
fn json_gives_the_same_file_as_yaml() {
    let value: serde_json::Value = serde_saphyr::from_str(PETSTORE).unwrap();
    assert_eq!(
        openapi(&value.to_string(), None).unwrap(),
        openapi(PETSTORE, None).unwrap()
    );
}

#[test]
fn a_base_url_stands_in_place_of_the_servers() {
    let file = openapi(PETSTORE, Some("http://127.0.0.1:9000/x/"))
        .unwrap()
        .yaml;
    assert!(
        file.contains("base_url: \"http://127.0.0.1:9000/x\"\n"),
        "{file}"
    );
    assert!(file.contains("private: [\"127.0.0.1/32\"]"), "{file}");
}

#[test]
fn a_document_without_a_server_reads_its_url_from_the_environment() {
    for servers in [
        json!([{"url": "http://169.254.169.254/latest"}]),
        json!([{"url": "http://localhost:8080"}]),
        json!([]),
        json!([{"url": "/v1"}]),
        json!([{"url": "https://u:p@x.example"}]),
    ] {
        let document = json!({
            "openapi": "3.1.0", "info": {"title": "Shop"}, "servers": servers,
            "paths": {"/a": {"get": {"responses": {}}}},
        });
        let file = openapi(&document.to_string(), None).unwrap().yaml;
        assert!(file.contains("base_url: \"${SHOP_URL}\""), "{file}");
        assert!(file.contains("  - name: get_a\n"), "{file}");
        assert!(!file.contains("private:"), "{file}");
    }
}

#[test]
fn the_schemas_of_3_1_are_json_schema() {
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Shop"}, "servers": [{"url": "https://shop.example"}],
        "paths": {"/a": {"post": {"operationId": "a", "requestBody": {"required": true, "content": {"application/json": {"schema": {
            "type": "object", "required": ["size"], "properties": {
                "size": {"type": ["integer", "null"], "exclusiveMinimum": 3},
                "kind": {"const": "x"},
                "any": true,
                "pair": {"prefixItems": [{"type": "string"}], "contains": {}},
            }}}}}}}},
    });
    let imported = openapi(&document.to_string(), None).unwrap();
    let file = &imported.yaml;
    assert!(
        file.contains("size: { type: [integer, \"null\"], exclusiveMinimum: 3 }"),
        "{file}"
    );
    assert!(file.contains("kind: { const: x }"), "{file}");
    assert!(file.contains("any: true"), "{file}");
    assert!(
        file.contains("review: `contains` of a schema is not imported"),
        "{file}"
    );
}

/// Imports a document with one operation that has these members.
fn operation(method: &str, parts: &serde_json::Value) -> ImportedCatalogue {
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Shop"}, "servers": [{"url": "https://x.example"}],
        "paths": {"/a": {method: parts}},
    });
    openapi(&document.to_string(), None).unwrap()
}

#[test]
fn an_object_with_a_list_among_other_members_is_one_row() {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let lines = json!({"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}});
    for (properties, rows) in [
        (
            json!({"id": {"type": "integer"}, "name": {"type": "string"}, "tags": texts}),
            false,
        ),
        (json!({"tags": texts}), false),
        (json!({"tags": texts, "total": {"type": "integer"}}), false),
        (json!({"id": {"type": "integer"}, "lines": lines}), false),
        (json!({"lines": lines, "others": lines}), false),
        (json!({"lines": lines}), true),
        (json!({"lines": lines, "elements": lines}), false),
        (json!({"lines": lines, "_links": lines}), true),
        (
            json!({"lines": lines, "nextPageToken": {}, "total_count": {}, "hasMore": {}}),
            true,
        ),
    ] {
        let answer = json!({"200": {"content": {"application/json": {"schema": {"type": "object", "properties": properties}}}}});
        let file = operation("get", &json!({"responses": answer})).yaml;
        let found = file.contains("result: { rows: /lines }");
        assert_eq!((found, file.contains("rows: ")), (rows, rows), "{file}");
    }
}

#[test]
fn an_operation_whose_body_cannot_be_sent_is_left_out() {
    let upload = json!({"multipart/form-data": {"schema": {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}}}});
    for required in [true, false] {
        let body = json!({"required": required, "content": upload});
        let imported = operation("post", &json!({"requestBody": body, "responses": {}}));
        assert!(imported.yaml.contains("tools: []"), "{}", imported.yaml);
        let note = imported
            .notes
            .iter()
            .find(|note| note.text.contains("multipart/form-data"));
        assert!(note.is_some(), "{:?}", imported.notes);
    }
    let mut either = upload;
    either["application/json"] = json!({"schema": {"type": "object"}});
    let body = json!({"content": either});
    let imported = operation("post", &json!({"requestBody": body, "responses": {}}));
    assert!(
        imported.yaml.contains("  - name: post_a\n"),
        "{}",
        imported.yaml
    );
}

#[test]
fn what_is_no_openapi_document_says_what_it_is() {
    for (text, problem) in [
        ("swagger: '2.0'\n", "Swagger 2"),
        ("openapi: 4.0.0\n", "not 3.x"),
        ("a: 1\n", "not an OpenAPI document"),
        ("openapi: 3.0.0\n", "there is nothing to import"),
    ] {
        let result = openapi(text, None);
        match result {
            Err(error) => assert!(error.to_string().contains(problem), "{text}: {error}"),
            // A file with a source alone loads, and has an empty list of tools.
            Ok(imported) => assert!(imported.yaml.contains("tools: []"), "{text}"),
        }
    }
}

#[test]
fn three_hundred_operations_are_three_hundred_tools() {
    let paths: serde_json::Map<_, _> = (0..150)
        .map(|number| {
            let body = json!({"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}});
            let item = json!({
                "get": {"operationId": format!("orders.{number}.read"), "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}}]},
                "patch": {"operationId": "orders.change", "requestBody": body},
            });
            (format!("/orders/{number}/{{id}}"), item)
        })
        .collect();
    let document = json!({
        "openapi": "3.0.0", "info": {"title": "Orders"}, "servers": [{"url": "https://orders.example"}], "paths": paths,
        "components": {"schemas": {"Order": {"type": "object", "properties": {"lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}}}}}},
    });
    let file = openapi(&document.to_string(), None).unwrap().yaml;
    assert_eq!(file.matches("\n  - name: ").count(), 300);
    assert!(
        file.contains("  - name: orders_change_150\n"),
        "names that collide are numbered"
    );
}

#[test]
fn a_file_holds_no_more_than_the_catalogue_reads() {
    let properties: serde_json::Map<_, _> = (0..900)
        .map(|number| {
            (
                format!("p{number}"),
                json!({"type": "string", "enum": ["a", "b", "c"]}),
            )
        })
        .collect();
    let body = json!({"required": true, "content": {"application/json": {"schema": {"type": "object", "properties": properties}}}});
    let paths: serde_json::Map<_, _> = (0..40)
        .map(|number| {
            (
                format!("/p{number}"),
                json!({"post": {"requestBody": body}}),
            )
        })
        .collect();
    let document = json!({
        "openapi": "3.0.0", "info": {"title": "Wide"}, "servers": [{"url": "https://wide.example"}], "paths": paths,
    });
    let imported = openapi(&document.to_string(), None).unwrap();
    let full = imported
        .notes
        .iter()
        .filter(|note| note.text.contains("the file has reached its size limit"));
    let tools = imported.yaml.matches("\n  - name: ").count();
    assert!(tools > 5 && full.count() + tools == 40, "{tools}");
}

#[test]
fn a_part_of_a_document_is_chosen_by_tag() {
    let document = json!({
        "openapi": "3.0.0", "info": {"title": "A shop of everything that anybody wants"},
        "servers": [{"url": "https://shop.example"}],
        "paths": {"/a": {"get": {"tags": ["x", "y"]}, "post": {"tags": ["z"]}, "put": {}}},
    });
    let options = OpenapiOptions {
        tags: vec!["y".to_owned()],
        ..OpenapiOptions::default()
    };
    let file = crate::openapi(&document.to_string(), &options)
        .unwrap()
        .yaml;
    assert_eq!(file.matches("\n  - name: ").count(), 1, "{file}");
    assert!(file.contains("  - name: get_a\n"), "{file}");
    assert!(file.contains("\n  a_shop_of_everything_that:\n"), "{file}");
}
