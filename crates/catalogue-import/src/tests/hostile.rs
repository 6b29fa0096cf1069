//! Tests with documents that are written to harm the person who imports them.

use serde_json::{Value, json};

use crate::{ImportError, OpenapiOptions, mcp_servers, openapi, toolbox};

fn api(paths: &Value) -> Value {
    json!({
        "openapi": "3.0.0", "info": {"title": "Evil"}, "servers": [{"url": "https://evil.example"}], "paths": paths,
    })
}

/// Returns the imported file, as text and as a value.
fn import_openapi(document: &Value) -> (String, Value) {
    let yaml = openapi(&document.to_string(), &OpenapiOptions::default())
        .unwrap()
        .yaml;
    let value = serde_saphyr::from_str::<Value>(&yaml).unwrap();
    (yaml, value)
}

#[test]
fn braces_of_a_document_never_become_placeholders() {
    let document = api(&json!({"/a/{x}/{/}}b{{id}}": {"post": {
        "operationId": "a", "description": "{x} {{y}} ${HOME}",
        "parameters": [
            {"name": "x", "in": "path", "required": true, "schema": {"type": "string"}},
            {"name": "q{x}", "in": "query", "schema": {"type": "string", "default": "{x}"}},
        ],
        "requestBody": {"required": true, "content": {"application/json": {"schema": {"type": "object", "properties": {"{x}": {"const": "{x}"}}}}}},
    }}}));
    let (yaml, value) = import_openapi(&document);
    let execute = &value["tools"][0]["execute"];
    // `{x}` is the parameter. The other braces of the path are not placeholders that the document declares.
    let path = execute["path"].as_str().unwrap_or_default();
    assert!(path.starts_with("/a/{x}/"), "{yaml}");
    assert_eq!(execute["query"], json!({"q{x}": "{q_x}"}), "{yaml}");
    assert_eq!(execute["json"], json!({"{x}": "{x_2}"}), "{yaml}");
}

#[test]
fn no_text_of_a_document_reads_the_environment() {
    let mut document = api(&json!({"/a": {"get": {"operationId": "a"}}}));
    document["info"]["title"] = json!("${HOME}");
    document["servers"] = json!([{"url": "https://evil.example/${HOME}"}]);
    document["components"]["securitySchemes"] = json!({
        "${HOME}": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "https://evil.example/${HOME}", "scopes": {"${HOME}": ""}}}},
    });
    let (yaml, value) = import_openapi(&document);
    assert!(!value["sources"].to_string().contains("${HOME}"), "{yaml}");
}

#[test]
fn no_text_of_a_document_leaves_its_comment_or_its_quotes() {
    let evil = "x\nsources: {}\n# \u{85}\u{2028}tools: []\u{0}\u{202e}\r- name: evil\n";
    let document = api(&json!({evil: {"get": {}}, "/b": {"get": {
        "operationId": evil, "summary": evil, "description": evil,
        "parameters": [
            {"name": evil, "in": "query", "style": "deepObject", "schema": {"type": "string", "description": evil, "enum": [evil]}},
            {"name": evil, "in": "cookie"},
        ],
        "responses": {"200": {"content": {"application/json": {"schema": {"type": "array", "items": {"properties": {evil: {}}}}}}}},
    }, "trace": {}}}));
    let (yaml, value) = import_openapi(&document);
    assert_eq!(value["tools"].as_array().unwrap().len(), 1, "{yaml}");
    assert!(
        !yaml
            .chars()
            .any(|c| (c.is_control() && c != '\n') || c == '\u{202e}' || c == '\u{2028}'),
        "{yaml:?}"
    );
}

#[test]
fn schemas_that_grow_without_end_are_cut() {
    let mut schemas =
        json!({"s0": {"type": "string"}, "loop": {"$ref": "#/components/schemas/loop"}});
    for level in 1..40 {
        let below = json!({"$ref": format!("#/components/schemas/s{}", level - 1)});
        schemas[format!("s{level}")] =
            json!({"type": "object", "properties": {"a": below, "b": below, "c": below}});
    }
    let mut deep = json!({"type": "string"});
    for _ in 0..25 {
        deep = json!({"type": "array", "items": deep});
    }
    let body = |schema: &Value| json!({"required": true, "content": {"application/json": {"schema": schema}}});
    let mut document = api(&json!({
        "/wide": {"post": {"operationId": "wide", "requestBody": body(&json!({"$ref": "#/components/schemas/s39"}))}},
        "/loop": {"post": {"operationId": "loop", "requestBody": body(&json!({"$ref": "#/components/schemas/loop"}))}},
        "/deep": {"post": {"operationId": "deep", "requestBody": body(&deep)}},
        "/self": {"$ref": "#/paths/~1self"},
    }));
    document["components"]["schemas"] = schemas;
    let (yaml, value) = import_openapi(&document);
    assert_eq!(value["tools"].as_array().unwrap().len(), 3, "{yaml}");
    assert!(yaml.len() < 500_000, "{}", yaml.len());
    assert!(yaml.contains("nested deeper than"), "{yaml}");
}

#[test]
fn shapes_that_no_document_has_do_no_harm() {
    let odd = [
        json!(null),
        json!(7),
        json!("x"),
        json!([]),
        json!([[]]),
        json!({"$ref": 5}),
        json!({"$ref": "#"}),
    ];
    for odd in &odd {
        for at in [
            "/info",
            "/servers",
            "/servers/0/url",
            "/servers/0/variables",
            "/paths",
            "/paths/~1a",
            "/paths/~1a/post",
            "/paths/~1a/post/parameters",
            "/paths/~1a/post/parameters/0",
            "/paths/~1a/post/parameters/0/schema",
            "/paths/~1a/post/parameters/0/schema/type",
            "/paths/~1a/post/parameters/0/schema/enum",
            "/paths/~1a/post/parameters/0/schema/properties",
            "/paths/~1a/post/requestBody",
            "/paths/~1a/post/requestBody/content",
            "/paths/~1a/post/responses",
            "/components/securitySchemes",
            "/components/securitySchemes/k",
            "/components/securitySchemes/k/flows",
            "/security",
        ] {
            let mut document = api(&json!({"/a": {"post": {
                "operationId": "a",
                "parameters": [{"name": "n", "in": "query", "schema": {"type": "string", "enum": ["a"], "properties": {}}}],
                "requestBody": {"content": {"application/json": {}}}, "responses": {},
            }}}));
            document["servers"][0]["variables"] = json!({});
            document["security"] = json!([{"k": []}]);
            document["components"]["securitySchemes"] =
                json!({"k": {"type": "oauth2", "flows": {}}});
            *document.pointer_mut(at).unwrap() = odd.clone();
            match openapi(&document.to_string(), &OpenapiOptions::default()) {
                Ok(_) | Err(ImportError::Nothing(_)) => {}
                Err(error) => panic!("{at} = {odd}: {error}"),
            }
        }
    }
}

#[test]
fn a_toolbox_file_cannot_smuggle_sql_or_variables() {
    let file = r#"
sources: { a: { kind: postgres, host: "h/?sslmode=disable&x=${HOME}", database: "d?options=-c", user: "u:p@evil", password: "p" } }
tools:
  two: { kind: postgres-sql, source: a, description: x, statement: "SELECT 1; DROP TABLE t" }
  colon: { kind: postgres-sql, source: a, description: x, parameters: [{ name: p, type: string, description: "" }], statement: "SELECT $1, :q" }
  brace: { kind: postgres-sql, source: a, description: x, statement: "SELECT {x}" }
  rule: { kind: postgres-sql, source: a, description: x, statement: "SELECT :row_rule" }
  words: { kind: postgres-sql, source: a, description: x, templateParameters: [{ name: d, type: string, description: "", allowedValues: ["DESC", "x; DROP"] }], statement: "SELECT 1 ORDER BY 1 {{.d}}" }
  "bad\nname": { kind: postgres-sql, source: a, description: "{x}", statement: "SELECT '{x} :x $1'" }
"#;
    let imported = toolbox(file).unwrap();
    let value = serde_saphyr::from_str::<Value>(&imported.yaml).unwrap();
    assert_eq!(
        value["tools"].as_array().unwrap().len(),
        1,
        "{}",
        imported.yaml
    );
    assert_eq!(value["tools"][0]["name"], "bad_name");
    let url = value["sources"]["a"]["url"].as_str().unwrap();
    assert_eq!(
        url,
        "postgres://u%3Ap%40evil:${A_PASSWORD}@h%2F%3Fsslmode%3Ddisable%26x%3D${HOME}/d%3Foptions%3D-c"
    );
    assert_eq!(
        imported
            .notes
            .iter()
            .filter(|note| note.text.starts_with("omitted"))
            .count(),
        5
    );
}

#[test]
fn any_text_is_imported_or_refused() {
    for text in [
        "",
        " ",
        "\u{feff}",
        "null",
        "{",
        "}",
        "[]",
        "---\n---\n",
        "a: &a [*a]",
        "<<: {a: 1}",
        "!!binary aGk=",
        "mcpServers: {a: {command: 7}}",
        "sources: 7",
        "tools: [a]",
        "kind: tool\nname: x",
        "openapi: 3.0.0\npaths: []",
    ] {
        let results = [
            openapi(text, &OpenapiOptions::default()),
            toolbox(text),
            mcp_servers(text),
        ];
        for result in results {
            assert!(
                !matches!(result, Err(ImportError::Unusable(_))),
                "{text}: {result:?}"
            );
        }
    }
}
