//! Reading and validation of `tools.yaml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wardgate_domain::Digest;
use wardgate_redact::ConfiguredForms;
use wardgate_yaml::{Node, NotYaml, Position};

use crate::classes::ClassReader;
use crate::fault::{Fault, Faults, FieldReader};
use crate::files::{AttachedFile, FileText, texts};
use crate::offers::Offers;
use crate::plan::ApprovedTool;
use crate::scope::{Types, read_types};
use crate::source::{SourceKind, SourceSettings, SourceVariables};
use crate::tool::{Tool, ToolFile};
use crate::toolset::Toolset;

/// A validated `tools.yaml`, or several such files in one directory.
#[derive(Debug)]
pub struct Catalogue {
    tools: Vec<Tool>,
    toolsets: Vec<Toolset>,
    sources: Vec<SourceSettings>,
    forms: Arc<ConfiguredForms>,
    version: Digest,
    imported: Vec<String>,
    followed: Vec<String>,
    missing: Vec<String>,
    instructions: BTreeMap<String, String>,
    secret_files: Vec<AttachedFile>,
    pub(crate) warnings: Vec<Fault>,
}

/// Tools and instructions that MCP servers add to a catalogue.
#[derive(Debug, Default)]
pub struct Imports {
    /// The imported tools, under the names that clients see.
    pub tools: Vec<Tool>,
    /// Names of the sources whose tools are imported.
    pub sources: Vec<String>,
    /// Names of those sources that do not answer.
    pub missing: Vec<String>,
    /// Names of the sources whose lists of tools are compared with the lock file: those whose tools are imported, and those
    /// whose tools must be approved before tools of the catalogue call them.
    pub followed: Vec<String>,
    /// For each source whose tools must be approved before tools of the catalogue call them, the approved ones, by the
    /// server's own names.
    pub called: BTreeMap<String, BTreeMap<String, ApprovedTool>>,
    /// The approved instructions of the servers, by source.
    pub instructions: BTreeMap<String, String>,
}

/// The top-level parts of a file, not yet parsed.
struct Parts<'n> {
    path: &'n Path,
    types: Types<'n>,
    classes: Option<&'n Node>,
    sources: Option<&'n Node>,
    toolsets: Option<&'n Node>,
    tools: Option<&'n Node>,
}

impl Catalogue {
    /// Reads and checks a file, or every `*.yaml` and `*.yml` of a directory. Every `${NAME}` of a source is looked up in
    /// `variables`, then in the environment. All faults that can be told apart are returned together. No connection is
    /// opened.
    pub fn load(path: &Path, variables: &BTreeMap<String, String>) -> Result<Self, Vec<Fault>> {
        Self::load_with(path, SourceVariables::Expanded(variables))
    }

    /// Reads and checks a catalogue as [`Catalogue::load`] does, for a program that opens no source: the variables and secret
    /// files of connections need not exist. The sources of the result have other values in place of them, and cannot be opened.
    pub fn load_definitions(path: &Path) -> Result<Self, Vec<Fault>> {
        Self::load_with(path, SourceVariables::Omitted)
    }

    fn load_with(path: &Path, variables: SourceVariables<'_>) -> Result<Self, Vec<Fault>> {
        match texts(path) {
            Ok(texts) => Self::parse_with(&texts, variables),
            Err(error) => {
                let mut faults = Faults::for_file(path);
                faults.add(
                    Position::START,
                    format!("the file cannot be read: {error}"),
                    "check its path, its permissions and that it is UTF-8",
                );
                Err(faults.into_vec())
            }
        }
    }

    /// Checks the text of one file, which faults refer to as `path`.
    pub fn parse_file(
        path: PathBuf,
        text: String,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, Vec<Fault>> {
        Self::parse(&[FileText { path, text }], variables)
    }

    /// Checks the texts of the files of a catalogue.
    pub fn parse(
        texts: &[FileText],
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, Vec<Fault>> {
        Self::parse_with(texts, SourceVariables::Expanded(variables))
    }

    fn parse_with(texts: &[FileText], variables: SourceVariables<'_>) -> Result<Self, Vec<Fault>> {
        let mut faults = Faults::for_file(Path::new(""));
        let mut nodes = Vec::new();
        for FileText { path, text } in texts {
            faults.in_file(path);
            match Node::parse(text) {
                Ok(node) => nodes.push((path.as_path(), node)),
                Err(NotYaml { at, problem }) => faults.add(
                    at,
                    format!("the file is not YAML: {problem}"),
                    "fix the syntax",
                ),
            }
        }
        let mut parts = Vec::new();
        for (path, node) in &nodes {
            faults.in_file(path);
            parts.extend(Parts::from_node(path, node, &mut faults));
        }
        let mut catalogue = Self::from_parts(&parts, variables, &mut faults);
        catalogue.warnings = faults.into_warnings()?;
        Ok(catalogue)
    }

    fn from_parts(
        parts: &[Parts<'_>],
        variables: SourceVariables<'_>,
        faults: &mut Faults,
    ) -> Self {
        let mut secret_files = Vec::new();
        let sources = read_sources(parts, variables, &mut secret_files, faults);
        let mut classes = ClassReader::default();
        for part in parts {
            faults.in_file(part.path);
            if let Some(node) = part.classes {
                classes.add_classes(node, faults);
            }
        }
        let forms = classes.finish();
        let mut tools = Vec::new();
        for part in parts {
            faults.in_file(part.path);
            let file = ToolFile {
                base: base(part.path),
                types: &part.types,
                sources: &sources,
                forms: &forms,
            };
            for node in part
                .tools
                .map(|node| faults.list(node, "tools"))
                .unwrap_or_default()
            {
                if let Some(tool) = Tool::from_node(node, &file, faults) {
                    tools.push((part.path, node, tool));
                }
            }
        }
        check_names(&tools, faults);
        let tools: Vec<_> = tools.into_iter().map(|(_, _, tool)| tool).collect();
        let prefixes: Vec<_> = sources
            .values()
            .flatten()
            .filter_map(SourceSettings::prefix)
            .collect();
        let mut toolsets = Vec::new();
        for part in parts {
            faults.in_file(part.path);
            if let Some(node) = part.toolsets {
                Toolset::read_all(node, &tools, &prefixes, &mut toolsets, faults);
            }
        }
        let sources: Vec<_> = sources.into_values().flatten().collect();
        Self {
            version: version(&tools, &toolsets, &sources, &forms, &[]),
            tools,
            toolsets,
            sources,
            forms,
            imported: Vec::new(),
            followed: Vec::new(),
            missing: Vec::new(),
            instructions: BTreeMap::new(),
            secret_files,
            warnings: Vec::new(),
        }
    }

    /// Returns the files from which sources read secrets. A source changes if the content of its file changes.
    pub fn secret_files(&self) -> &[AttachedFile] {
        &self.secret_files
    }

    /// Returns the tools in the order of the file.
    #[must_use]
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// Returns the version, which changes whenever anything changes that clients or the policy see of any tool.
    #[must_use]
    pub fn version(&self) -> Digest {
        self.version
    }

    /// Returns the groups of tools, by name.
    #[must_use]
    pub fn toolsets(&self) -> &[Toolset] {
        &self.toolsets
    }

    /// Returns the sources, sorted by name.
    pub fn sources(&self) -> &[SourceSettings] {
        &self.sources
    }

    /// Returns the configured redacted forms of column classes.
    pub fn forms(&self) -> &Arc<ConfiguredForms> {
        &self.forms
    }

    /// Appends the tools of MCP servers to the tools of the catalogue. Their names must differ from those of the catalogue.
    /// Removes the tools of the catalogue that call a tool which must be approved and is not.
    pub fn import(&mut self, imports: Imports) {
        let called = &imports.called;
        self.tools.retain_mut(|tool| tool.pin_upstream_tool(called));
        let forms = &self.forms;
        let tools = imports.tools.into_iter();
        self.tools.extend(tools.map(|tool| tool.with_forms(forms)));
        self.imported = imports.sources;
        self.followed = imports.followed;
        self.missing = imports.missing;
        self.instructions = imports.instructions;
        let version = version(
            &self.tools,
            &self.toolsets,
            &self.sources,
            &self.forms,
            &self.missing,
        );
        let instructions = format!("{:?}", self.instructions);
        self.version = if self.instructions.is_empty() {
            version
        } else {
            Digest::of_parts([version.as_bytes().as_slice(), instructions.as_bytes()])
        };
    }

    /// Returns the names of tools that toolsets contain but that do not exist.
    pub fn absent(&self) -> BTreeSet<String> {
        let named = self.toolsets.iter().flat_map(|toolset| &toolset.tools);
        let is_absent = |name: &&String| {
            let mut tools = self.tools.iter();
            !tools.any(|tool| tool.facts.name.as_str() == name.as_str())
        };
        named.filter(is_absent).cloned().collect()
    }

    /// Returns the names of the sources whose tools are imported.
    pub fn imported_sources(&self) -> &[String] {
        &self.imported
    }

    /// Returns the names of the sources whose lists of tools are compared with the lock file.
    pub fn followed_sources(&self) -> &[String] {
        &self.followed
    }

    /// Returns the approved instructions of servers, by source.
    pub fn instructions(&self) -> &BTreeMap<String, String> {
        &self.instructions
    }

    /// Returns the names of the sources whose tools are imported and that do not answer.
    pub fn missing_sources(&self) -> &[String] {
        &self.missing
    }

    /// Returns the tools, the toolsets, the sources and the version.
    pub fn into_parts(self) -> (Vec<Tool>, Vec<Toolset>, Vec<SourceSettings>, Digest) {
        (self.tools, self.toolsets, self.sources, self.version)
    }
}

fn base(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

impl<'n> Parts<'n> {
    fn from_node(path: &'n Path, node: &'n Node, faults: &mut Faults) -> Option<Self> {
        let mut fields = FieldReader::new(node, "the file", faults)?;
        let types = fields.take_optional("types");
        let parts = Self {
            path,
            types: read_types(types, faults),
            classes: fields.take_optional("classes"),
            sources: fields.take_optional("sources"),
            toolsets: fields.take_optional("toolsets"),
            tools: fields.take_optional("tools"),
        };
        if parts.sources.is_none() && parts.toolsets.is_none() && parts.tools.is_none() {
            faults.add(
                node.at,
                "`the file` has no `tools`",
                "add `tools:` with one entry per tool, or `sources:` whose tools are imported",
            );
        }
        fields.finish(faults);
        Some(parts)
    }
}

fn read_sources(
    parts: &[Parts<'_>],
    variables: SourceVariables<'_>,
    secret_files: &mut Vec<AttachedFile>,
    faults: &mut Faults,
) -> BTreeMap<String, Option<SourceSettings>> {
    let mut sources = BTreeMap::new();
    let mut taken = BTreeMap::new();
    for part in parts {
        faults.in_file(part.path);
        let entries = part.sources.and_then(|node| faults.map(node, "sources"));
        for entry in entries.unwrap_or_default() {
            let (key, _) = entry;
            let base = base(part.path);
            let settings = SourceSettings::from_entry(entry, base, variables, secret_files, faults);
            if let Some(settings) = &settings {
                check_content(settings, &mut taken, faults);
            }
            if sources.insert(key.name.clone(), settings).is_some() {
                faults.add(
                    key.at,
                    format!("another file defines a source `{}`", key.name),
                    "give each source a unique name",
                );
            }
        }
    }
    sources
}

/// Checks that no two prompts have the same name and no two resources the same URI, because clients do not see their
/// source.
fn check_content(
    settings: &SourceSettings,
    taken: &mut BTreeMap<(&'static str, String), String>,
    faults: &mut Faults,
) {
    let SourceKind::Content(content) = &settings.kind else {
        return;
    };
    for (at, kind, name) in content.names() {
        if let Some(other) = taken.insert((kind, name.to_owned()), settings.name.clone()) {
            faults.add(
                at,
                format!("source `{other}` has a {kind} `{name}`"),
                format!("give each {kind} a unique name"),
            );
        }
    }
}

/// Checks that no two tools have the same name or alias.
fn check_names(tools: &[(&Path, &Node, Tool)], faults: &mut Faults) {
    let mut taken: BTreeMap<&str, &Tool> = BTreeMap::new();
    for (path, node, tool) in tools {
        faults.in_file(path);
        let own = ("/name".to_owned(), &tool.facts.name);
        let aliases = tool.aliases.iter().enumerate();
        let aliases = aliases.map(|(number, alias)| (format!("/aliases/{number}"), alias));
        for (place, name) in [own].into_iter().chain(aliases) {
            if let Some(other) = taken.insert(name.as_str(), tool) {
                faults.add(
                    node.follow(&place).at,
                    format!(
                        "the name `{name}` is already used by tool `{}`",
                        other.facts.name
                    ),
                    "give each tool and each alias a unique name",
                );
            }
        }
    }
}

fn version(
    tools: &[Tool],
    toolsets: &[Toolset],
    sources: &[SourceSettings],
    forms: &ConfiguredForms,
    missing: &[String],
) -> Digest {
    let mut names = String::new();
    for tool in tools {
        names.push_str(&tool.facts.definition_digest.to_string());
        for alias in &tool.aliases {
            names.push(' ');
            names.push_str(alias.as_str());
        }
        names.push('\n');
    }
    for toolset in toolsets {
        names.push_str(&format!("{toolset:?}\n"));
    }
    for offers in sources
        .iter()
        .filter_map(|it| Offers::from_source(it, tools))
    {
        names.push_str(&format!("{}\n", offers.digest()));
    }
    for form in forms.iter() {
        names.push_str(&format!("{form:?}\n"));
    }
    for source in missing {
        names.push_str(&format!("missing {source:?}\n"));
    }
    Digest::compute(names.as_bytes())
}
