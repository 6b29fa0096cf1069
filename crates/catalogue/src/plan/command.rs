//! `type: command`: runs a program without a shell.

mod argv;

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use wardgate_sandbox::{KernelSupport, Program, ResourceLimits, RunInput, Sandbox};
use wardgate_yaml::Node;

use super::Plan;
use crate::fault::FieldReader;
use crate::scope::Scope;
use crate::template::{Template, UnfitValue, is_identifier};

pub use argv::Argv;

/// Directories that are searched for programs if `env` has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Default maximum size of the output of a run, in bytes. `limits.output` overrides it.
const MAX_OUTPUT: usize = 1 << 20;
/// Prefix of environment variables that hold headers.
const HEADER_PREFIX: &str = "WARDGATE_HEADER_";

/// A validated command.
#[derive(Debug, Clone)]
pub struct CommandPlan {
    /// The program and its confinement.
    pub program: Program,
    argv: Argv,
    /// The complete environment of the program.
    environment: Vec<(String, Template)>,
    stdin: Option<Template>,
    /// The format of standard output.
    pub format: OutputFormat,
    /// Whether lines of standard error are reported as progress.
    pub progress: bool,
}

/// The format of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// Standard output is one JSON document.
    Json,
    /// Each line is a row with the column `line`.
    Lines,
    /// The whole output is one row with the column `text`.
    Text,
}

impl OutputFormat {
    const ALL: [(&'static str, Self); 3] = [
        ("json", Self::Json),
        ("lines", Self::Lines),
        ("text", Self::Text),
    ];

    /// Returns the only column of the rows, or `None` for a JSON document.
    #[must_use]
    pub fn column(self) -> Option<&'static str> {
        match self {
            Self::Json => None,
            Self::Lines => Some("line"),
            Self::Text => Some("text"),
        }
    }
}

impl CommandPlan {
    /// Returns the input of one run.
    pub fn input(&self, values: &Map<String, Value>) -> Result<RunInput, UnfitValue> {
        let environment = self.environment.iter().map(|(name, template)| {
            let text = template.fill_plain(values)?;
            if text.contains('\0') {
                let place = template.places().next();
                return Err(UnfitValue {
                    argument: place.map(|place| place.name.clone()).unwrap_or_default(),
                    problem: "must not contain a NUL character",
                });
            }
            Ok((name.clone(), text))
        });
        let stdin = self.stdin.as_ref().map(|text| text.fill_plain(values));
        Ok(RunInput {
            words: self.argv.fill(values)?,
            environment: environment.collect::<Result<_, _>>()?,
            stdin: stdin.transpose()?,
        })
    }
}

pub(super) fn read_plan(fields: &mut FieldReader<'_>, scope: &mut Scope<'_, '_>) -> Option<Plan> {
    let faults_before = scope.faults.count();
    let argv = fields.take_required("argv", "add the program and its arguments", scope.faults);
    let template = fields.take_optional("template");
    let env = fields.take_optional("env");
    let headers = fields.take_optional("headers");
    let directory = fields.take_optional("cwd");
    let stdin = fields.take_optional("stdin");
    let format = fields.take_optional("output");
    let progress = fields.take_optional("progress");
    let sandbox = fields.take_optional("sandbox");
    let limits = fields.take_optional("limits");

    let mut environment = env.map_or_else(Vec::new, |node| read_environment(node, scope));
    let path = environment.iter().find(|(name, _)| name == "PATH");
    let path = path
        .map_or(DEFAULT_PATH, |(_, path)| path.prefix())
        .to_owned();
    environment.extend(
        headers
            .into_iter()
            .flat_map(|node| read_headers(node, scope)),
    );

    let (name, mut words) = read_argv(argv?, scope)?;
    if let Some(node) = template {
        words.extend(read_template(node, scope));
    }
    let program = find_program(&name, &path, argv?, scope);
    let directory = match directory {
        Some(node) => read_path(node, "cwd", scope),
        None => absolute(scope.base),
    };
    let (limits, max_output) =
        limits.map_or_else(Default::default, |node| read_limits(node, scope));
    let sandbox = sandbox.map(|node| read_sandbox(node, scope));
    let command = CommandPlan {
        program: Program {
            name,
            path: program?,
            launcher: wardgate_sandbox::THIS_BINARY.into(),
            directory: directory?,
            limits,
            max_output: max_output.unwrap_or(MAX_OUTPUT),
            sandbox: sandbox.flatten(),
        },
        argv: Argv::new(words),
        environment,
        stdin: stdin.and_then(|node| scope.template(node, "stdin")),
        format: format.map_or(Some(OutputFormat::Text), |node| read_format(node, scope))?,
        progress: progress.is_some_and(|node| scope.faults.boolean(node, "progress") == Some(true)),
    };
    (scope.faults.count() == faults_before).then_some(Plan::Command(command))
}

/// Reads the name of the program and the templates of its arguments.
fn read_argv(node: &Node, scope: &mut Scope<'_, '_>) -> Option<(String, Vec<Template>)> {
    let Some((program, words)) = scope.faults.list(node, "argv").split_first() else {
        scope.faults.add(
            node.at,
            "`argv` contains no program",
            "write it first, for example `[git, log]`",
        );
        return None;
    };
    let name = scope.faults.text(program, "argv")?.to_owned();
    if Template::parse(&name, program.at).places().next().is_some() {
        scope.faults.add(
            program.at,
            "an argument cannot select the program",
            "write the program's name or path first in `argv`",
        );
        return None;
    }
    let words = words.iter().filter_map(|word| {
        let text = scope.faults.any_text(word, "argv")?;
        Some(scope.template_of(&text, word.at))
    });
    Some((name, words.collect()))
}

/// Splits a template like a shell when the catalogue is read, so that the value of a placeholder stays inside its word.
fn read_template(node: &Node, scope: &mut Scope<'_, '_>) -> Vec<Template> {
    let Some(text) = scope.faults.text(node, "template") else {
        return Vec::new();
    };
    let Some(words) = shlex::split(text) else {
        scope.faults.add(
            node.at,
            "`template` has an unclosed quote or a trailing backslash",
            "close every quote",
        );
        return Vec::new();
    };
    words
        .iter()
        .map(|word| scope.template_of(word, node.at))
        .collect()
}

fn read_environment(node: &Node, scope: &mut Scope<'_, '_>) -> Vec<(String, Template)> {
    let entries = scope.faults.map(node, "env").unwrap_or_default();
    let mut environment = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        if !is_identifier(&key.name) {
            scope.faults.add(
                key.at,
                format!(
                    "`{}` is not a valid name of an environment variable",
                    key.name
                ),
                "use letters, digits and `_`",
            );
        }
        if let Some(text) = scope.faults.any_text(value, &key.name) {
            environment.push((key.name.clone(), scope.template_of(&text, value.at)));
        }
    }
    environment
}

/// Reads headers for programs that forward them. For example, `destination` becomes the environment variable
/// `WARDGATE_HEADER_DESTINATION`.
fn read_headers(node: &Node, scope: &mut Scope<'_, '_>) -> Vec<(String, Template)> {
    let entries = scope.faults.map(node, "headers").unwrap_or_default();
    let mut headers = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let name = key.name.replace('-', "_").to_ascii_uppercase();
        if !is_identifier(&name) {
            scope.faults.add(
                key.at,
                format!(
                    "`{}` is not a header name that an environment variable can contain",
                    key.name
                ),
                "use letters, digits and `-`",
            );
        }
        if let Some(text) = scope.faults.any_text(value, &key.name) {
            headers.push((
                format!("{HEADER_PREFIX}{name}"),
                scope.template_of(&text, value.at),
            ));
        }
    }
    headers
}

fn read_format(node: &Node, scope: &mut Scope<'_, '_>) -> Option<OutputFormat> {
    let word = scope.faults.text(node, "output")?;
    let format = OutputFormat::ALL
        .into_iter()
        .find(|(name, _)| *name == word);
    if format.is_none() {
        let names = OutputFormat::ALL.map(|(name, _)| name).join("`, `");
        scope.faults.add(
            node.at,
            format!("`{word}` is not a format of output"),
            format!("use one of `{names}`"),
        );
    }
    Some(format?.1)
}

fn read_limits(node: &Node, scope: &mut Scope<'_, '_>) -> (ResourceLimits, Option<usize>) {
    let Some(mut fields) = FieldReader::new(node, "limits", scope.faults) else {
        return Default::default();
    };
    let faults = &mut *scope.faults;
    let cpu = fields
        .take_optional("cpu")
        .and_then(|node| faults.duration(node, "cpu"));
    let mut count = |name| {
        let count = fields
            .take_optional(name)
            .and_then(|node| faults.positive(node, name));
        count.map(|count| count as u64)
    };
    let (files, processes) = (count("files"), count("processes"));
    let mut size = |name| {
        fields
            .take_optional(name)
            .and_then(|node| faults.size(node, name))
    };
    let (memory, file_size, output) = (size("memory"), size("file_size"), size("output"));
    fields.finish(faults);
    let limits = ResourceLimits {
        // The kernel limits CPU time in whole seconds.
        cpu: cpu.map(|cpu| cpu.as_secs() + u64::from(cpu.subsec_nanos() > 0)),
        memory: memory.map(|size| size as u64),
        files,
        processes,
        file_size: file_size.map(|size| size as u64),
    };
    (limits, output)
}

fn read_sandbox(node: &Node, scope: &mut Scope<'_, '_>) -> Option<Sandbox> {
    let mut fields = FieldReader::new(node, "sandbox", scope.faults)?;
    let (read, write) = (fields.take_optional("read"), fields.take_optional("write"));
    let (network, required) = (
        fields.take_optional("network"),
        fields.take_optional("required"),
    );
    fields.finish(scope.faults);
    let mut paths = |node: Option<&Node>, what| -> Vec<PathBuf> {
        let nodes = node.map_or(&[][..], |node| scope.faults.list(node, what));
        nodes
            .iter()
            .filter_map(|node| read_path(node, what, scope))
            .collect()
    };
    let (read, write) = (paths(read, "read"), paths(write, "write"));
    let network = network.and_then(|node| scope.faults.boolean(node, "network"));
    let required = required.and_then(|node| scope.faults.boolean(node, "required"));
    let required = required.unwrap_or(true);
    if required && !KernelSupport::probe().files {
        scope.faults.add(
            node.at,
            "this kernel does not support Landlock, which the `sandbox` of a program requires",
            "run on Linux 5.13 or later with Landlock, or add `required: false`",
        );
    }
    Some(Sandbox {
        read,
        write,
        network: network.unwrap_or(false),
        required,
    })
}

/// Reads a path relative to the file, which must exist.
fn read_path(node: &Node, what: &str, scope: &mut Scope<'_, '_>) -> Option<PathBuf> {
    let text = scope.faults.text(node, what)?;
    let path = absolute(&scope.base.join(text))?;
    if !path.exists() {
        scope.faults.add(
            node.at,
            format!("`{text}`, which `{what}` names, does not exist"),
            "create it, or correct the path; it is relative to this file",
        );
        return None;
    }
    Some(path)
}

#[cfg(unix)]
fn is_executable(file: &Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_file: &Metadata) -> bool {
    true
}

/// Finds a program. A name with a `/` is relative to the file; any other name is searched for in `path`.
fn find_program(name: &str, path: &str, argv: &Node, scope: &mut Scope<'_, '_>) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        let found = path.metadata();
        found.is_ok_and(|it| it.is_file() && is_executable(&it))
    };
    let (found, fix) = if name.contains('/') {
        let fix =
            "correct its path, which is relative to this file, and make it executable".to_owned();
        (absolute(&scope.base.join(name)).filter(is_program), fix)
    } else {
        let mut places = path.split(':').filter(|place| place.starts_with('/'));
        let fix =
            format!("install it in one of `{path}`, specify its path, or set `PATH` in `env`");
        (
            places.find_map(|place| Some(Path::new(place).join(name)).filter(is_program)),
            fix,
        )
    };
    if found.is_none() {
        scope
            .faults
            .add(argv.at, format!("the program `{name}` does not exist"), fix);
    }
    found
}

fn absolute(path: &Path) -> Option<PathBuf> {
    // The parent directory of a bare file name is the empty path.
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    std::path::absolute(path).ok()
}
