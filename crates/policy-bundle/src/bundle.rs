//! The contents of a bundle: its version, its files, and the tools that its tests name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wardgate_domain::{BundleReference, ColumnClass, Digest, OfferKind, ToolFacts, ToolName};

use crate::{BundleError, BundleSigner, BundleVerifier, envelope};

/// Maximum number of files in a bundle.
const MAX_FILES: usize = 512;

/// Maximum length of a file, in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;

/// Maximum length of a path, in bytes.
const MAX_PATH_BYTES: usize = 200;

/// Maximum number of tools in a bundle.
const MAX_TOOLS: usize = 4_096;

/// The largest version, which every reader of JSON can represent.
const MAX_VERSION: u64 = (1 << 53) - 1;

/// The directory of tests within a bundle.
const TESTS: &str = "tests";

/// The contents of a bundle, within the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyBundle {
    contents: BundleContents,
    payload: Vec<u8>,
    reference: BundleReference,
}

/// The payload, whose members are in the order in which they are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BundleContents {
    version: u64,
    files: Vec<BundledFile>,
    tools: Vec<BundledTool>,
}

/// A file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledFile {
    /// The name, or `tests/` and the name.
    pub path: String,
    /// The contents.
    pub text: String,
}

/// The facts about a tool, or about another offer of a source, that a test of the bundle names. The policy service has
/// no catalogue, so the bundle brings them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledTool {
    kind: BundledKind,
    name: String,
    read_only: bool,
    tags: Vec<String>,
    entity: Option<String>,
    classes: Vec<String>,
    argument_defaults: BTreeMap<String, String>,
}

/// The kind of an offer, as a bundle writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BundledKind {
    Tool,
    Connect,
    Resources,
    Prompts,
}

impl PolicyBundle {
    /// Creates a bundle of these files and tools, in any order.
    pub fn new(
        version: u64,
        mut files: Vec<BundledFile>,
        mut tools: Vec<BundledTool>,
    ) -> Result<Self, BundleError> {
        files.sort_unstable();
        tools.sort_unstable();
        tools.dedup();
        let contents = BundleContents {
            version,
            files,
            tools,
        };
        let payload = serde_json::to_vec(&contents)
            .map_err(|error| BundleError::Payload(error.to_string()))?;
        Self::from_contents(contents, payload)
    }

    /// Reads a bundle that one of the keys of `verifier` signed. Its contents are parsed only after the signature is
    /// verified.
    pub fn open(bytes: &[u8], verifier: &BundleVerifier) -> Result<Self, BundleError> {
        Self::parse(envelope::open(bytes, verifier)?)
    }

    /// Reads the version and the digest of a bundle without verifying its signature.
    pub(crate) fn unverified_reference(bytes: &[u8]) -> Result<BundleReference, BundleError> {
        Self::parse(envelope::unverified_payload(bytes)?).map(|bundle| bundle.reference())
    }

    fn parse(payload: Vec<u8>) -> Result<Self, BundleError> {
        let contents: BundleContents = serde_json::from_slice(&payload)
            .map_err(|error| BundleError::Payload(error.to_string()))?;
        Self::from_contents(contents, payload)
    }

    fn from_contents(contents: BundleContents, payload: Vec<u8>) -> Result<Self, BundleError> {
        contents.check()?;
        let reference = BundleReference {
            version: contents.version,
            digest: Digest::compute(&payload),
        };
        Ok(Self {
            contents,
            payload,
            reference,
        })
    }

    /// Signs the bundle and returns the file. The same bundle and key give the same bytes.
    pub fn sign(&self, signer: &BundleSigner) -> Result<String, BundleError> {
        let sealed = envelope::seal(&self.payload, signer);
        if sealed.len() > envelope::MAX_BYTES {
            let problem = format!("would be longer than {} bytes", envelope::MAX_BYTES);
            return Err(BundleError::TooLarge(problem));
        }
        Ok(sealed)
    }

    /// Returns the version, and the SHA-256 digest of the signed contents.
    pub fn reference(&self) -> BundleReference {
        self.reference
    }

    /// Returns the files, sorted by path.
    pub fn files(&self) -> &[BundledFile] {
        &self.contents.files
    }

    /// Returns the files with policy tests.
    pub fn tests(&self) -> impl Iterator<Item = &BundledFile> {
        let is_test = |file: &&BundledFile| extension(&file.path) == Some("yaml");
        self.contents.files.iter().filter(is_test)
    }

    /// Returns the tools and other offers that the tests name.
    pub fn tools(&self) -> Result<Vec<ToolFacts>, BundleError> {
        self.contents.tools.iter().map(BundledTool::facts).collect()
    }
}

impl BundleContents {
    fn check(&self) -> Result<(), BundleError> {
        if !(1..=MAX_VERSION).contains(&self.version) {
            let problem = format!("the version is not 1 to {MAX_VERSION}");
            return Err(BundleError::Payload(problem));
        }
        if self.files.len() > MAX_FILES || self.tools.len() > MAX_TOOLS {
            let problem = format!("has more than {MAX_FILES} files or {MAX_TOOLS} tools");
            return Err(BundleError::TooLarge(problem));
        }
        for file in &self.files {
            check_path(&file.path)?;
            if file.text.len() > MAX_FILE_BYTES {
                let problem = format!(
                    "has a file of more than {MAX_FILE_BYTES} bytes, {}",
                    file.path
                );
                return Err(BundleError::TooLarge(problem));
            }
        }
        if let Some(pair) = (self.files.windows(2)).find(|pair| pair[0].path >= pair[1].path) {
            return Err(BundleError::Path {
                path: pair[1].path.clone(),
                problem: "it occurs twice, or the files are not sorted",
            });
        }
        Ok(())
    }
}

/// Checks that `path` is a file of policies, a schema or a test. The files are never written to a disk; a path is
/// nevertheless refused if it could lead anywhere.
fn check_path(path: &str) -> Result<(), BundleError> {
    let problem = path_problem(path);
    problem.map_or(Ok(()), |problem| {
        Err(BundleError::Path {
            path: path
                .chars()
                .filter(|c| !c.is_control())
                .take(MAX_PATH_BYTES)
                .collect(),
            problem,
        })
    })
}

fn path_problem(path: &str) -> Option<&'static str> {
    if path.len() > MAX_PATH_BYTES {
        return Some("its path is too long");
    }
    if path.chars().any(|c| c.is_control() || c == '\\') {
        return Some("its path contains a control character or a backslash");
    }
    let (is_test, name) = match path.split_once('/') {
        None => (false, path),
        Some((TESTS, name)) => (true, name),
        Some(_) => return Some("only `tests` may be a directory"),
    };
    if name.contains('/') || name.starts_with('.') {
        return Some("its path leaves the directory, or its name begins with a dot");
    }
    let is_known = match extension(name) {
        Some("yaml") => is_test || extension(name.trim_end_matches(".yaml")) == Some("test"),
        Some("cedar" | "cedarschema") => !is_test,
        _ => false,
    };
    (!is_known)
        .then_some("it is neither `*.cedar`, `*.cedarschema`, `*.test.yaml` nor `tests/*.yaml`")
}

fn extension(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(_, extension)| extension)
}

impl From<&ToolFacts> for BundledTool {
    fn from(tool: &ToolFacts) -> Self {
        Self {
            kind: match tool.kind {
                OfferKind::Tool => BundledKind::Tool,
                OfferKind::Connect => BundledKind::Connect,
                OfferKind::Resources => BundledKind::Resources,
                OfferKind::Prompts => BundledKind::Prompts,
            },
            name: tool.name.to_string(),
            read_only: tool.read_only,
            tags: tool.tags.to_vec(),
            entity: tool.entity.clone(),
            classes: tool.classes.iter().map(ToString::to_string).collect(),
            argument_defaults: tool.argument_defaults.clone(),
        }
    }
}

impl BundledTool {
    fn facts(&self) -> Result<ToolFacts, BundleError> {
        let invalid = |problem: String| {
            BundleError::Payload(format!(
                "the tool `{}`: {problem}",
                self.name.escape_debug()
            ))
        };
        let name = self.name.parse::<ToolName>();
        let classes = self.classes.iter().map(|class| {
            let class = class.parse::<ColumnClass>();
            class.map_err(|error| invalid(error.to_string()))
        });
        Ok(ToolFacts {
            kind: match self.kind {
                BundledKind::Tool => OfferKind::Tool,
                BundledKind::Connect => OfferKind::Connect,
                BundledKind::Resources => OfferKind::Resources,
                BundledKind::Prompts => OfferKind::Prompts,
            },
            name: name.map_err(|error| invalid(error.to_string()))?,
            // No policy reads the digest.
            definition_digest: Digest::compute(self.name.as_bytes()),
            read_only: self.read_only,
            tags: self.tags.as_slice().into(),
            entity: self.entity.clone(),
            classes: classes.collect::<Result<_, _>>()?,
            argument_defaults: self.argument_defaults.clone(),
        })
    }
}
