//! Import of OpenAPI 3.0 and 3.1. Every operation becomes an `http` tool.
//!
//! ```text
//!   servers, securitySchemes ─▶ source (security)
//!   paths × methods          ─▶ tool: parameters and body (request) ─ schemas resolved (schema) ─ rows (response)
//! ```

mod request;
mod response;
mod schema;
mod security;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use url::{Host, Url};

use super::draft::{Draft, SourceDraft, ToolDraft};
use super::text::{self, identifier, name};
use super::{ImportError, ImportedCatalogue, document};
use schema::Schemas;

/// Maximum number of imported tools. Models cannot make use of more, so the rest is left out.
const MAX_TOOLS: usize = 1_000;

/// HTTP methods that are imported.
const METHODS: [&str; 6] = ["get", "head", "post", "put", "patch", "delete"];

/// HTTP methods of OpenAPI that tools do not support.
const OTHER_METHODS: [&str; 2] = ["options", "trace"];

/// Maximum length of the name of the source, which the names of variables begin with.
const MAX_SOURCE_NAME: usize = 32;

/// The document, which references are resolved in.
#[derive(Debug, Clone, Copy)]
struct OpenapiDocument<'d> {
    root: &'d Value,
}

impl<'d> OpenapiDocument<'d> {
    /// Returns `value`, or the value that its `$ref` refers to in the document. Chains of more than a few references are
    /// not resolved.
    fn resolve(self, mut value: &'d Value) -> Option<&'d Value> {
        for _ in 0..8 {
            match value.get("$ref") {
                None => return Some(value),
                Some(reference) => value = self.follow(reference.as_str()?)?,
            }
        }
        None
    }

    /// Returns the target of a reference, or `None` if it is missing or in another document.
    fn follow(self, reference: &str) -> Option<&'d Value> {
        let pointer = reference.strip_prefix('#')?;
        let pointer = percent_decode_str(pointer).decode_utf8().ok()?;
        self.root.pointer(&pointer)
    }
}

/// The part of a document that is imported, and the service.
#[derive(Debug, Clone, Default)]
pub struct OpenapiOptions {
    /// The URL of the service, which overrides the document's `servers`.
    pub base_url: Option<String>,
    /// Tags of which an imported operation must have at least one. If empty, all operations are imported.
    pub tags: Vec<String>,
}

/// Imports an OpenAPI document.
pub fn openapi(text: &str, options: &OpenapiOptions) -> Result<ImportedCatalogue, ImportError> {
    let root = Value::Object(document::parse_one(text)?);
    check_version(&root)?;
    let api = OpenapiDocument { root: &root };
    let mut draft = Draft::new("an OpenAPI document");
    let title = root.pointer("/info/title").and_then(Value::as_str);
    let mut source = SourceDraft {
        name: source_name(title.unwrap_or_default()),
        ..SourceDraft::default()
    };
    source.fields.insert("type".to_owned(), "http".into());
    let base_url = options.base_url.as_deref();
    locate(&root, base_url, &mut source, &mut draft);
    security::set_auth(api, &mut source, &mut draft);
    if !draft.source(&source) {
        return draft.finish();
    }
    if root.get("webhooks").is_some() {
        draft.note(
            "the document",
            "its webhooks are omitted: they are calls to other services",
        );
    }
    let operations = operations(api, &options.tags, &mut draft);
    for (at, operation) in operations.iter().enumerate() {
        if at == MAX_TOOLS {
            let rest = operations.len() - MAX_TOOLS;
            draft.note(
                "the document",
                format!(
                    "{rest} operations are omitted: the limit is {MAX_TOOLS} tools; select operations with --tag"
                ),
            );
            break;
        }
        import(api, &source.name, operation, &mut draft);
    }
    draft.finish()
}

fn check_version(root: &Value) -> Result<(), ImportError> {
    let unreadable = |problem: &str| Err(ImportError::Unreadable(problem.to_owned()));
    let version = match root.get("openapi") {
        Some(Value::String(version)) => version.clone(),
        Some(Value::Number(version)) => version.to_string(),
        _ if root.get("swagger").is_some() => {
            return unreadable("it is Swagger 2; convert it to OpenAPI 3 first");
        }
        _ => return unreadable("it has no `openapi` version, so it is not an OpenAPI document"),
    };
    if !version.starts_with("3.") {
        return unreadable("its `openapi` version is not 3.x");
    }
    Ok(())
}

fn source_name(title: &str) -> String {
    let name = identifier(&title.to_ascii_lowercase(), "api");
    let Some(start) = name.get(..MAX_SOURCE_NAME) else {
        return name;
    };
    // Truncation drops a whole word rather than a part of one.
    let (words, _) = start.rsplit_once('_').unwrap_or((start, ""));
    words.trim_end_matches('_').to_owned()
}

/// Determines the URL of the service.
fn locate(root: &Value, base_url: Option<&str>, source: &mut SourceDraft, draft: &mut Draft) {
    let servers = root.get("servers").and_then(Value::as_array);
    let servers = servers.map_or(&[][..], Vec::as_slice);
    let url = match (base_url, servers.first()) {
        (Some(url), _) => url.to_owned(),
        (None, Some(server)) => {
            if servers.len() > 1 {
                source.reviews.push(format!(
                    "the document contains {} servers; this is the first",
                    servers.len()
                ));
            }
            with_defaults(server, &mut source.reviews)
        }
        (None, None) => String::new(),
    };
    let parsed = Url::parse(&url).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
            // Texts of a source are expanded, so the URL must not refer to environment variables.
            && !url.as_str().contains("${")
    });
    let networks = parsed.as_ref().and_then(private_networks);
    let problem = match (&parsed, &networks) {
        (None, _) => "the document contains no absolute http(s) URL without credentials and query",
        // The author of the document must not choose which addresses of the private network can be reached.
        (Some(_), Some(_)) if base_url.is_none() => {
            "the document's server is outside the public internet: set its URL, and `private` if that is intended"
        }
        _ => "",
    };
    if let (Some(url), true) = (parsed, problem.is_empty()) {
        let text = url.as_str().trim_end_matches('/');
        source.fields.insert("base_url".to_owned(), text.into());
        if let Some(networks) = networks {
            source.fields.insert("private".to_owned(), networks);
        }
        return;
    }
    source.reviews.push(problem.to_owned());
    let variable = format!("{}_URL", text::variable(&source.name));
    let about = "the URL of the service";
    let reference = draft.variable(&variable, about, "https://api.example.com");
    source
        .fields
        .insert("base_url".to_owned(), reference.into());
}

/// Returns the URL of a server, with the document's default for each `{variable}`.
fn with_defaults(server: &Value, reviews: &mut Vec<String>) -> String {
    let mut url = server["url"].as_str().unwrap_or_default().to_owned();
    let variables = server.get("variables").and_then(Value::as_object);
    for (name, variable) in variables.into_iter().flatten() {
        if let Some(default) = variable["default"].as_str() {
            reviews.push(format!(
                "the default of `{{{name}}}` in the server's URL is used"
            ));
            url = url.replace(&format!("{{{name}}}"), default);
        }
    }
    url
}

/// Returns the value of `private` that this URL needs, if any.
pub(super) fn private_networks(url: &Url) -> Option<Value> {
    match url.host()? {
        Host::Domain(domain) if domain == "localhost" || domain.ends_with(".localhost") => {
            Some(json!(["127.0.0.0/8", "::1"]))
        }
        Host::Domain(_) => None,
        Host::Ipv4(ip) => {
            let is_public = !(ip.is_private() || ip.is_loopback() || ip.is_link_local());
            (!is_public).then(|| json!([format!("{ip}/32")]))
        }
        Host::Ipv6(ip) => {
            let is_public = !(ip.is_loopback() || ip.is_unique_local());
            (!is_public).then(|| json!([format!("{ip}/128")]))
        }
    }
}

/// An operation: one method of one path.
struct Operation<'d> {
    method: &'static str,
    path: &'d str,
    item: &'d Value,
    definition: &'d Value,
}

/// Returns the operations with one of `tags`, in the order of the document.
fn operations<'d>(
    api: OpenapiDocument<'d>,
    tags: &[String],
    draft: &mut Draft,
) -> Vec<Operation<'d>> {
    let mut operations = Vec::new();
    let paths = api.root.get("paths").and_then(Value::as_object);
    for (path, item) in paths.into_iter().flatten() {
        if !path.starts_with('/') {
            continue;
        }
        let Some(item) = api.resolve(item) else {
            draft.leave_out_tool(
                path,
                "its `$ref` refers to another document or does not exist",
            );
            continue;
        };
        for method in OTHER_METHODS {
            if item.get(method).is_some_and(|it| is_chosen(it, tags)) {
                draft.leave_out_tool(
                    &format!("{method} {path}"),
                    "the supported methods are GET, HEAD, POST, PUT, PATCH and DELETE",
                );
            }
        }
        for method in METHODS {
            let definition = item.get(method).filter(|it| it.is_object());
            if let Some(definition) = definition.filter(|it| is_chosen(it, tags)) {
                operations.push(Operation {
                    method,
                    path,
                    item,
                    definition,
                });
            }
        }
    }
    operations
}

fn is_chosen(definition: &Value, tags: &[String]) -> bool {
    let own = definition["tags"].as_array().into_iter().flatten();
    tags.is_empty()
        || own
            .filter_map(Value::as_str)
            .any(|own| tags.iter().any(|tag| tag == own))
}

fn import(api: OpenapiDocument<'_>, source: &str, operation: &Operation<'_>, draft: &mut Draft) {
    let Operation {
        method,
        path,
        definition,
        ..
    } = operation;
    let by_path = name(&format!("{method}_{path}"), method);
    let wanted = definition["operationId"].as_str().unwrap_or_default();
    let mut tool = ToolDraft {
        name: draft.tool_name(&name(wanted, &by_path)),
        ..ToolDraft::default()
    };
    tool.describe(&description(definition));
    if tool.description.is_empty() {
        tool.describe(&format!("{} {path}", method.to_ascii_uppercase()));
        tool.reviews
            .push("the operation has no description: add its purpose".to_owned());
    }
    if definition["deprecated"] == true {
        tool.reviews.push("the operation is deprecated".to_owned());
    }
    if definition.get("servers").is_some() || operation.item.get("servers").is_some() {
        tool.reviews.push(
            "the operation has its own servers; requests are sent to the server of the source"
                .to_owned(),
        );
    }
    match *method {
        "get" | "head" => tool.hints.push("readOnlyHint"),
        "put" | "delete" => tool.hints.push("idempotentHint"),
        _ => {}
    }
    let mut schemas = Schemas::new(api);
    let request = match request::read_request(operation, &mut schemas, &mut tool.reviews) {
        Ok(request) => request,
        Err(reason) => return draft.leave_out_tool(&tool.name, &reason),
    };
    tool.input_schema = request.input_schema;
    tool.execute = Map::from_iter([
        ("type".to_owned(), "http".into()),
        ("source".to_owned(), source.into()),
        ("method".to_owned(), method.to_ascii_uppercase().into()),
        ("path".to_owned(), request.path.into()),
    ]);
    tool.execute.extend(request.parts);
    response::guess(api, definition, &mut tool);
    tool.reviews.extend(schemas.into_reviews());
    draft.tool(&tool);
}

fn description(definition: &Value) -> String {
    let part = |key: &str| definition[key].as_str().unwrap_or_default().trim();
    let (summary, description) = (part("summary"), part("description"));
    if description.is_empty() || description.starts_with(summary) {
        return match description {
            "" => summary.to_owned(),
            text => text.to_owned(),
        };
    }
    let stop = if summary.ends_with(['.', '!', '?', ':']) {
        ""
    } else {
        "."
    };
    format!("{summary}{stop}\n\n{description}")
}
