//! One resource of a `content` source, or the resources of a URI template.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use url::Url;
use wardgate_domain::UriTemplate;
use wardgate_yaml::{Node, Position};

use super::{Arguments, ContentError};
use crate::fault::{Faults, FieldReader};
use crate::files::AttachedFile;
use crate::template::Template;

/// Maximum size of a file, in bytes. The file is held in memory and has to fit into a response.
const MAX_FILE: u64 = 512 * 1024;

/// Maximum length of a URI, in characters.
const MAX_URI: usize = 1024;

/// URI scheme that is reserved for conversations.
const TAKEN_SCHEME: &str = "memory";

/// A resource, or the resources of a URI template.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(super) at: Position,
    pub(super) address: Address,
    about: ResourceDescription,
    body: ResourceBody,
    file: Option<AttachedFile>,
}

/// The address of a resource.
#[derive(Debug)]
pub(super) enum Address {
    Uri(String),
    Template(UriTemplate, Box<Arguments>),
}

/// The members that describe the resource in a list.
#[derive(Debug)]
struct ResourceDescription {
    name: String,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
}

#[derive(Debug)]
enum ResourceBody {
    Text(String),
    Blob {
        base64: String,
        size: usize,
    },
    /// A text with placeholders for the variables of the URI template.
    Template(Template),
}

impl Resource {
    pub(super) fn from_node(node: &Node, base: &Path, faults: &mut Faults) -> Option<Self> {
        let mut fields = FieldReader::new(node, super::what("resource", node, "name"), faults)?;
        let (uri, template) = (
            fields.take_optional("uri"),
            fields.take_optional("uri_template"),
        );
        let arguments = fields.take_optional("arguments");
        let name = fields.take_required("name", "add a display `name`", faults);
        let name = name.and_then(|node| faults.text(node, "name"));
        let mut text = |member, faults: &mut Faults| {
            let node = fields.take_optional(member)?;
            faults
                .text(node, member)
                .map(|text| text.trim_end().to_owned())
        };
        let about = ResourceDescription {
            name: name.unwrap_or_default().to_owned(),
            title: text("title", faults),
            description: text("description", faults),
            mime_type: text("mime_type", faults),
        };
        if let (Some(node), Some(mime_type)) = (node.get("mime_type"), &about.mime_type)
            && !mime_type.contains('/')
        {
            faults.add(
                node.at,
                "`mime_type` is not a media type",
                "write for example text/markdown",
            );
        }
        let (text, file) = (fields.take_optional("text"), fields.take_optional("file"));
        fields.finish(faults);
        let (at, address) = match (uri, template) {
            (Some(node), None) => {
                if let Some(arguments) = arguments {
                    faults.add(
                        arguments.at,
                        "a resource with a plain `uri` does not support `arguments`",
                        "write `uri_template: …` with a `{variable}` for each",
                    );
                }
                (node.at, plain(node, faults).map(Address::Uri))
            }
            (None, Some(node)) => (node.at, parse_uri_template(node, arguments, faults)),
            _ => {
                faults.add(
                    node.at,
                    "a resource must have either a `uri` or a `uri_template`",
                    "write for example `uri: guide://triage`",
                );
                return None;
            }
        };
        let address = address?;
        let mut attached = None;
        let body = match (text, file, &address) {
            (Some(node), None, Address::Uri(_)) => {
                faults.any_text(node, "text").map(ResourceBody::Text)
            }
            (Some(node), None, Address::Template(_, arguments)) => arguments
                .template(node, "text", faults)
                .map(ResourceBody::Template),
            (None, Some(node), Address::Uri(_)) => {
                let read = file_of(node, base, faults);
                read.map(|(body, file)| {
                    attached = Some(file);
                    body
                })
            }
            _ => {
                faults.add(
                    node.at,
                    "a resource must have either a `text` or a `file`, and a `uri_template` requires a `text`",
                    "add the content under `text`",
                );
                None
            }
        };
        Some(Self {
            at,
            address,
            about,
            body: body?,
            file: attached,
        })
    }

    /// Returns what clients see of the resource besides its URI.
    pub(super) fn definition(&self) -> Value {
        let about = &self.about;
        let mut definition = json!({ "name": about.name });
        for (member, text) in [
            ("title", &about.title),
            ("description", &about.description),
            ("mimeType", &about.mime_type),
        ] {
            if let Some(text) = text {
                definition[member] = text.as_str().into();
            }
        }
        let size = match &self.body {
            ResourceBody::Text(text) => Some(text.len()),
            ResourceBody::Blob { size, .. } => Some(*size),
            ResourceBody::Template(_) => None,
        };
        if let Some(size) = size {
            definition["size"] = size.into();
        }
        definition
    }

    /// Returns the file from which the resource is read, or `None` if its text is in the catalogue.
    pub(super) fn file(&self) -> Option<&AttachedFile> {
        self.file.as_ref()
    }

    /// Returns the content, for a digest. The text of a template is part of the catalogue file and is left out.
    pub(super) fn body(&self) -> &str {
        match &self.body {
            ResourceBody::Text(text) => text,
            ResourceBody::Blob { base64, .. } => base64,
            ResourceBody::Template(_) => "",
        }
    }

    /// Returns the contents at `uri`, or `None` if this resource does not have that URI.
    pub(super) fn contents(&self, uri: &str) -> Option<Result<Value, ContentError>> {
        let values = match &self.address {
            Address::Uri(own) => (own == uri).then(BTreeMap::new),
            Address::Template(template, _) => template.match_uri(uri),
        }?;
        Some(self.fill(uri, &values))
    }

    fn fill(&self, uri: &str, values: &BTreeMap<String, String>) -> Result<Value, ContentError> {
        let mut contents = json!({ "uri": uri });
        if let Some(mime_type) = &self.about.mime_type {
            contents["mimeType"] = mime_type.as_str().into();
        }
        match (&self.body, &self.address) {
            (ResourceBody::Text(text), _) => contents["text"] = text.as_str().into(),
            (ResourceBody::Blob { base64, .. }, _) => contents["blob"] = base64.as_str().into(),
            (ResourceBody::Template(template), Address::Template(_, arguments)) => {
                let values = arguments.check_texts(values)?;
                contents["text"] = template.fill_plain(&values)?.into();
            }
            // A text with placeholders always belongs to a URI template.
            (ResourceBody::Template(_), Address::Uri(_)) => return Err(ContentError::Unknown),
        }
        Ok(contents)
    }
}

fn plain(node: &Node, faults: &mut Faults) -> Option<String> {
    let uri = faults.text(node, "uri")?;
    if uri.contains(['{', '}']) {
        faults.add(
            node.at,
            "`uri` contains braces",
            "write `uri_template: …` if they are variables, or %7B and %7D",
        );
        return None;
    }
    is_usable(uri, node, "uri", faults).then(|| uri.to_owned())
}

fn parse_uri_template(
    node: &Node,
    arguments: Option<&Node>,
    faults: &mut Faults,
) -> Option<Address> {
    let text = faults.text(node, "uri_template")?;
    let template: UriTemplate = match text.parse() {
        Ok(template) => template,
        Err(problem) => {
            faults.add(
                node.at,
                format!("`uri_template` is not a reversible template: {problem}"),
                "write for example guide://ward/{ward} (RFC 6570, level 1)",
            );
            return None;
        }
    };
    let sample = template
        .variables()
        .map(|name| (name.to_owned(), "x".to_owned()));
    if !is_usable(
        &template.fill(&sample.collect()),
        node,
        "uri_template",
        faults,
    ) {
        return None;
    }
    let arguments = Arguments::of_variables(&template, arguments, faults)?;
    Some(Address::Template(template, Box::new(arguments)))
}

/// Returns whether `uri` is an absolute URI (RFC 3986, section 4.3) whose scheme is not reserved.
fn is_usable(uri: &str, node: &Node, what: &str, faults: &mut Faults) -> bool {
    let is_legal = uri.len() <= MAX_URI && uri.bytes().all(|byte| byte.is_ascii_graphic());
    match Url::parse(uri) {
        Ok(url) if is_legal && url.scheme() != TAKEN_SCHEME => true,
        Ok(url) if url.scheme() == TAKEN_SCHEME => {
            faults.add(
                node.at,
                format!(
                    "`{what}` begins with {TAKEN_SCHEME}:, which is reserved for conversations"
                ),
                "choose another scheme, for example guide:",
            );
            false
        }
        _ => {
            faults.add(
                node.at,
                format!("`{what}` is not an absolute URI of at most {MAX_URI} ASCII characters"),
                "write for example guide://triage",
            );
            false
        }
    }
}

fn file_of(node: &Node, base: &Path, faults: &mut Faults) -> Option<(ResourceBody, AttachedFile)> {
    let name = faults.text(node, "file")?;
    let path = base.join(name);
    let read = std::fs::metadata(&path).and_then(|found| {
        let bytes = match found.len() {
            0..=MAX_FILE => Some(std::fs::read(&path)?),
            _ => None,
        };
        Ok((bytes, AttachedFile::from_metadata(path, &found)))
    });
    match read {
        Ok((Some(bytes), file)) => Some((ResourceBody::from_bytes(bytes), file)),
        Ok((None, _)) => {
            faults.add(
                node.at,
                format!("the file `{name}` is larger than {} KiB", MAX_FILE / 1024),
                "reduce its size, or offer it by a tool that supports pages",
            );
            None
        }
        Err(error) => {
            faults.add(
                node.at,
                format!("the file `{name}` cannot be read: {error}"),
                "check its path (relative to this file) and its permissions",
            );
            None
        }
    }
}

impl ResourceBody {
    /// Creates a text body if `bytes` is UTF-8, and a blob otherwise.
    fn from_bytes(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(other) => Self::Blob {
                base64: STANDARD.encode(other.as_bytes()),
                size: other.as_bytes().len(),
            },
        }
    }
}
