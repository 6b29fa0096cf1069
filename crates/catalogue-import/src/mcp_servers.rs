//! Import of the `mcpServers` of MCP clients, in the dialects of common clients. Each server becomes a source of type
//! `mcp`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use url::Url;

use super::draft::{Draft, SourceDraft};
use super::secrets::{is_secret, is_secret_name, is_secret_value};
use super::text::{UniqueNames, name, variable};
use super::{ImportError, ImportedCatalogue, document, openapi};

/// JSON Pointers to the map of servers in the configurations of clients.
const SECTIONS: [&str; 6] = [
    "/mcpServers",
    "/servers",
    "/mcp/servers",
    "/mcp/mcpServers",
    "/mcp_servers",
    "/context_servers",
];

/// Keys for the URL of a server.
const URLS: [&str; 3] = ["url", "httpUrl", "serverUrl"];

/// Keys that are read, or that can be ignored without loss.
const KNOWN: [&str; 12] = [
    "command",
    "args",
    "env",
    "headers",
    "type",
    "transport",
    "url",
    "httpUrl",
    "serverUrl",
    "disabled",
    "name",
    "description",
];

/// Authentication schemes before a credential in a header.
const SCHEMES: [&str; 3] = ["Bearer ", "Basic ", "Token "];

/// Imports the servers of a client's configuration.
pub fn mcp_servers(text: &str) -> Result<ImportedCatalogue, ImportError> {
    let root = Value::Object(document::parse_one(text)?);
    let servers = SECTIONS
        .iter()
        .find_map(|section| root.pointer(section)?.as_object())
        .ok_or_else(|| {
            ImportError::Unreadable("it has neither `mcpServers` nor `servers`".to_owned())
        })?;
    let mut import = McpServersImport {
        draft: Draft::new("the MCP servers of a client"),
        inputs: inputs(&root),
        taken: BTreeMap::new(),
    };
    let mut names = UniqueNames::default();
    for (original, server) in servers {
        let name = names.unique(&name(original, "server"));
        let mut source = SourceDraft {
            name,
            ..SourceDraft::default()
        };
        if *original != source.name {
            source.reviews.push(format!(
                "the server `{original}` is named `{}`",
                source.name
            ));
        }
        match import.server(server, &mut source) {
            Ok(()) => {
                import.draft.source(&source);
            }
            Err(reason) => import.draft.leave_out_source(&source.name, &reason),
        }
    }
    import.draft.note(
        "the sources",
        "their tools are offered after `wardgate tools approve` has pinned them, and their results are `unclassified` until `classes` of \
         the source sets their classes",
    );
    import.draft.finish()
}

/// Returns the descriptions of the inputs that a client asks its user for, by ID.
fn inputs(root: &Value) -> BTreeMap<String, String> {
    let inputs = [root.pointer("/inputs"), root.pointer("/mcp/inputs")];
    let inputs = inputs.into_iter().flatten().filter_map(Value::as_array);
    inputs
        .flatten()
        .filter_map(|input| {
            let id = input["id"].as_str()?;
            let text = input["description"]
                .as_str()
                .unwrap_or("a value that the client requests");
            Some((id.to_owned(), text.to_owned()))
        })
        .collect()
}

struct McpServersImport {
    draft: Draft,
    inputs: BTreeMap<String, String>,
    /// The values that the variables stand for, so that two different secrets never share a variable.
    taken: BTreeMap<String, String>,
}

impl McpServersImport {
    /// Fills in the source. An error is the reason why the server cannot be imported.
    fn server(&mut self, server: &Value, source: &mut SourceDraft) -> Result<(), String> {
        let members = server.as_object().ok_or("it is not a map")?;
        source.fields.insert("type".to_owned(), "mcp".into());
        let url = URLS.iter().find_map(|key| members.get(*key)?.as_str());
        match (members.get("command").and_then(Value::as_str), url) {
            (Some(command), None) => self.program(command, members, source),
            (None, Some(url)) => self.endpoint(url, members, source)?,
            _ => return Err("it must have exactly one of `command` and `url`".to_owned()),
        }
        if members.get("disabled") == Some(&Value::Bool(true)) {
            source
                .reviews
                .push("it is disabled in the client: none of its tools is offered".to_owned());
            source.fields.insert("tools".to_owned(), "none".into());
        }
        for key in members.keys().filter(|key| !KNOWN.contains(&key.as_str())) {
            source.reviews.push(format!("`{key}` is not imported"));
        }
        Ok(())
    }

    fn program(&mut self, command: &str, members: &Map<String, Value>, source: &mut SourceDraft) {
        let mut words = vec![self.text("command", "command", command, &source.name)];
        let args = members.get("args").and_then(Value::as_array);
        let args = args.into_iter().flatten().filter_map(Value::as_str);
        let mut flag = "";
        for arg in args {
            words.push(self.argument(flag, arg, &source.name));
            let is_flag = arg.starts_with('-') && !arg.contains('=');
            flag = if is_flag { arg } else { "" };
        }
        source.fields.insert("command".to_owned(), words.into());
        let env = self.texts(members.get("env"), "", source);
        if !env.is_empty() {
            source.fields.insert("env".to_owned(), env.into());
        }
    }

    fn endpoint(
        &mut self,
        url: &str,
        members: &Map<String, Value>,
        source: &mut SourceDraft,
    ) -> Result<(), String> {
        let transport = members.get("type").or_else(|| members.get("transport"));
        if transport.and_then(Value::as_str) == Some("sse") {
            source.reviews.push(
                "it uses SSE, the transport of 2024-11-05; replace the URL by that of its Streamable HTTP endpoint"
                    .to_owned(),
            );
        }
        if let Ok(parsed) = Url::parse(url) {
            if !parsed.username().is_empty() || parsed.password().is_some() {
                return Err(
                    "its URL contains credentials; put them in `auth` of a source".to_owned(),
                );
            }
            if parsed.query().is_some() || parsed.fragment().is_some() {
                return Err(
                    "its URL contains a query, which often contains keys; put them in `headers` of a source".to_owned(),
                );
            }
            if let Some(networks) = openapi::private_networks(&parsed) {
                source.reviews.push(
                    "an address outside the public internet is allowed because this URL has one"
                        .to_owned(),
                );
                source.fields.insert("private".to_owned(), networks);
            }
        }
        let url = self.text("url", "url", url, &source.name);
        source.fields.insert("url".to_owned(), url.into());
        let prefix = format!("{}_", source.name);
        let headers = self.texts(members.get("headers"), &prefix, source);
        if !headers.is_empty() {
            source.fields.insert("headers".to_owned(), headers.into());
        }
        Ok(())
    }

    /// Converts the texts of a map. A secret is replaced by a variable whose name is `prefix` and the key.
    fn texts(
        &mut self,
        node: Option<&Value>,
        prefix: &str,
        source: &SourceDraft,
    ) -> Map<String, Value> {
        let mut texts = Map::new();
        for (key, value) in node.and_then(Value::as_object).into_iter().flatten() {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Null => continue,
                other => other.to_string(),
            };
            // The catalogue does not allow empty texts in sources.
            if value.is_empty() {
                self.draft.note(
                    format!("source `{}`", source.name),
                    format!("`{key}` is empty and omitted"),
                );
                continue;
            }
            let text = self.text(&format!("{prefix}{key}"), key, &value, &source.name);
            texts.insert(key.clone(), text.into());
        }
        texts
    }

    /// Converts an argument of a program, which may be the value of the preceding flag.
    fn argument(&mut self, flag: &str, arg: &str, source: &str) -> String {
        let flag = if arg.starts_with('-') || flag.is_empty() {
            "argument"
        } else {
            flag
        };
        if is_secret_name(flag) || !arg.contains(['=', ':']) {
            return self.text(&format!("{source}_{flag}"), flag, arg, source);
        }
        let Some(at) = arg.find(['=', ':']) else {
            return arg.to_owned();
        };
        let (name, value) = (&arg[..at], &arg[at + 1..]);
        let is_name = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        if is_name && !value.starts_with("//") {
            let text = value.trim_start();
            let blank = &value[..value.len() - text.len()];
            let text = self.text(&format!("{source}_{name}"), name, text, source);
            return format!("{}{blank}{text}", &arg[..=at]);
        }
        self.text(&format!("{source}_{flag}"), flag, arg, source)
    }

    /// Converts a text: references of the client become references of the catalogue, and a secret is replaced by a
    /// variable. `wanted` is the preferred name of the variable, and `key` the name of the value.
    fn text(&mut self, wanted: &str, key: &str, text: &str, source: &str) -> String {
        let (converted, literal) = self.references(text, source);
        let has_references = converted.contains("${");
        let scheme = SCHEMES.iter().find(|scheme| literal.starts_with(**scheme));
        let bare = &literal[scheme.map_or(0, |scheme| scheme.len())..];
        let is_leaking = if has_references {
            is_secret_value(bare)
        } else {
            is_secret(key, bare) || (scheme.is_some() && !bare.is_empty())
        };
        let is_broken = literal.contains("${");
        if !is_leaking && !is_broken {
            return converted;
        }
        let mut name = variable(wanted);
        if self.taken.get(&name).is_some_and(|value| value != bare) {
            name = variable(&format!("{source}_{wanted}"));
        }
        let mut number = 2;
        while self.taken.get(&name).is_some_and(|value| value != bare) {
            name = variable(&format!("{source}_{wanted}_{number}"));
            number += 1;
        }
        self.taken.insert(name.clone(), bare.to_owned());
        let was = if is_broken {
            "a value that only the client can fill in"
        } else {
            "which the file contained in plain text"
        };
        let about = format!("`{key}` of the server `{source}`, {was}");
        let sample = if key == "url" {
            "https://mcp.example.com/mcp"
        } else {
            "example"
        };
        let reference = self.draft.variable(&name, &about, sample);
        format!("{}{reference}", scheme.unwrap_or(&""))
    }

    /// Returns `text` with each reference written as `${NAME}` or `${NAME:-default}`, and `text` without the references.
    fn references(&mut self, text: &str, source: &str) -> (String, String) {
        let (mut converted, mut literal) = (String::new(), String::new());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            converted.push_str(before);
            literal.push_str(before);
            let found = after.split_once('}').and_then(|(inside, behind)| {
                let (name, default, about) = self.reference(inside, source)?;
                Some((name, default, about, behind))
            });
            let Some((name, default, about, behind)) = found else {
                literal.push_str("${");
                rest = after;
                continue;
            };
            let is_whole_url = before.is_empty() && converted.is_empty();
            let sample = if is_whole_url {
                "https://mcp.example.com/mcp"
            } else {
                "example"
            };
            self.taken.insert(name.clone(), format!("${{{name}}}"));
            let reference = self.draft.variable(&name, &about, sample);
            converted.push_str(&match default {
                Some(default) => format!("${{{name}:-{default}}}"),
                None => reference,
            });
            rest = behind;
        }
        converted.push_str(rest);
        literal.push_str(rest);
        (converted, literal)
    }

    /// Parses a reference of a client, and returns the name of the variable, its default and its description.
    fn reference(&self, inside: &str, source: &str) -> Option<(String, Option<String>, String)> {
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let about = format!("an environment variable of the server `{source}`");
        if let Some(id) = inside.strip_prefix("input:") {
            let about = self.inputs.get(id).cloned().unwrap_or(about);
            return Some((variable(id), None, about));
        }
        let inside = inside.strip_prefix("env:").unwrap_or(inside);
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (inside, None),
        };
        // A secret default must not be written to the file.
        let default = default.filter(|default| !is_secret(name, default));
        is_name(name).then(|| (name.to_owned(), default, about))
    }
}
