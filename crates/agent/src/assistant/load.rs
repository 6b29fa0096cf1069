//! Reads `assistants.yaml` and validates it completely.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use regex::Regex;
use serde_json::Value;

use super::command::{Argument, Command, ConfiguredCall};
use super::fault::AssistantFaults;
use super::language::{ByLanguage, Language};
use super::prompt::{Prompt, Template};
use super::secret_files::SecretFiles;
use super::settings::{self, File, Texts};
use super::variables::{VariableError, Variables};
use super::{Assistant, Assistants, Check, Guardrail, MissingVariables, ModelChoice};
use crate::Error;
use crate::clients::ModelClient;
use wardgate_tool_call_parser::{CallSyntax, Family};
use wardgate_yaml::{NotYaml, Spanned};

/// Opens a provider by its name and settings. The error describes why the settings are invalid.
pub(crate) type OpenProvider =
    dyn Fn(&str, Value) -> Result<Arc<dyn ModelClient>, String> + Send + Sync;

/// The file extension of chat templates.
const TEMPLATE: &str = "jinja";

/// The path and the content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// Reads a file, or all files `*.yaml` and `*.yml` of a directory in the order of their names, and the chat templates (`*.jinja`)
/// in the same directory.
pub(crate) fn texts(path: &Path) -> std::io::Result<Vec<Text>> {
    let mut paths = Vec::new();
    let is_directory = path.is_dir();
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    let directory = match parent {
        _ if is_directory => path,
        Some(parent) => parent,
        None => Path::new("."),
    };
    for entry in std::fs::read_dir(directory)? {
        let found = entry?.path();
        let extension = found.extension().and_then(|it| it.to_str());
        let is_wanted = match extension {
            Some("yaml" | "yml") => is_directory,
            extension => extension == Some(TEMPLATE),
        };
        if is_wanted && found.is_file() {
            paths.push(found);
        }
    }
    if !is_directory {
        paths.push(path.to_owned());
    }
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path)?;
        Ok(Text { path, text })
    };
    paths.into_iter().map(read).collect()
}

impl Text {
    fn is_template(&self) -> bool {
        self.path.extension().is_some_and(|it| it == TEMPLATE)
    }
}

type Provider = Result<Arc<dyn ModelClient>, MissingVariables>;

struct AssistantsReader<'a> {
    faults: AssistantFaults,
    variables: &'a BTreeMap<String, String>,
    /// The directory of the assistants' files.
    directory: PathBuf,
    secret_files: &'a mut SecretFiles,
    /// The providers by name; `None` for an invalid provider whose fault is already recorded.
    providers: BTreeMap<String, Option<Provider>>,
    templates: Vec<&'a Text>,
}

/// Parses and validates assistants. The secret files that they refer to are read and added to `secret_files`. The error lists all
/// faults that can be told apart.
pub(crate) fn parse(
    texts: &[Text],
    variables: &BTreeMap<String, String>,
    open: &OpenProvider,
    secret_files: &mut SecretFiles,
) -> Result<Assistants, Error> {
    let directory = texts.first().and_then(|text| text.path.parent());
    let mut reader = AssistantsReader {
        faults: AssistantFaults::default(),
        variables,
        directory: directory.unwrap_or(Path::new("")).to_owned(),
        secret_files,
        providers: BTreeMap::new(),
        templates: texts.iter().filter(|text| text.is_template()).collect(),
    };
    let files: Vec<_> = texts
        .iter()
        .filter(|text| !text.is_template())
        .filter_map(|text| Some((text.path.as_path(), reader.file(text)?)))
        .collect();
    for (path, file) in &files {
        reader.faults.in_file(path);
        for (name, settings) in &file.providers {
            reader.provider(name, settings, open);
        }
    }
    let mut assistants: Vec<Arc<Assistant>> = Vec::new();
    for (path, file) in files {
        reader.faults.in_file(path);
        for settings in file.assistants {
            let at = settings.value.name.referenced;
            let name = settings.value.name.value.clone();
            if assistants.iter().any(|other| other.name == name) {
                let problem = format!("two assistants are named `{name}`; give each a unique name");
                reader.faults.add(at, problem);
            }
            assistants.extend(reader.assistant(settings.value).map(Arc::new));
        }
    }
    match reader.faults.into_text() {
        None => Ok(Assistants(assistants)),
        Some(text) => Err(Error::Assistants(text)),
    }
}

/// Replaces the variables in a provider's settings, and the file names in `tls` by the content of the files.
fn fill_provider(settings: &mut Value, variables: &mut Variables<'_>) -> Result<(), VariableError> {
    variables.fill(settings)?;
    let tls = settings.get_mut("tls").and_then(Value::as_object_mut);
    for (_, file) in tls.into_iter().flatten() {
        if let Value::String(path) = file {
            *path = variables.file(path)?;
        }
    }
    Ok(())
}

impl AssistantsReader<'_> {
    fn file(&mut self, text: &Text) -> Option<File> {
        self.faults.in_file(&text.path);
        match wardgate_yaml::parse(&text.text) {
            Ok(file) => Some(file),
            Err(NotYaml { at, problem }) => {
                self.faults.add(at, problem);
                None
            }
        }
    }

    fn provider(&mut self, name: &str, settings: &Spanned<Value>, open: &OpenProvider) {
        let at = settings.referenced;
        let mut variables = Variables::new(self.variables, &self.directory, self.secret_files);
        let mut filled = settings.value.clone();
        let is_filled = fill_provider(&mut filled, &mut variables);
        let missing = variables.into_missing_names();
        let opened = match is_filled {
            Err(error) => Err(format!("provider `{name}` {error}")),
            Ok(()) if !missing.is_empty() => Ok(Err(MissingVariables(missing))),
            Ok(()) => open(name, filled).map(Ok),
        };
        let opened = opened.map_err(|problem| self.faults.add(at, problem));
        let provider = opened.ok();
        if self.providers.insert(name.to_owned(), provider).is_some() {
            self.faults
                .add(at, format!("another file defines the provider `{name}`"));
        }
    }

    fn assistant(&mut self, settings: settings::Assistant) -> Option<Assistant> {
        let name = settings.name.value;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_name) {
            let problem = "a `name` must have 1 to 64 characters of A-Z a-z 0-9 - _ . :";
            self.faults.add(settings.name.referenced, problem);
        }
        let model = self.model(
            &settings.provider,
            &settings.model,
            settings.temperature,
            settings.max_output_tokens,
        );
        let guardrail = settings.guardrail.map(|guardrail| {
            let model = self.guardrail_model(&guardrail.value, &settings.provider, &settings.model);
            (model, self.guardrail(guardrail))
        });
        let family = self.family(settings.family);
        let syntax = self.syntax(family, settings.template);
        let prompts = self.texts(settings.prompts, Prompt::parse);
        let input = self.checks(settings.checks.input);
        let output = self.checks(settings.checks.output);
        let commands = settings
            .commands
            .into_iter()
            .filter_map(|(name, command)| self.command(name, command))
            .collect();
        let opening = settings
            .opening
            .map(|call| self.call(call.value.tool, call.value.arguments, &["message"]));
        let limits = settings.limits;
        let counts = [limits.turns, limits.identical_calls].map(u64::from);
        let sums = [limits.tokens, limits.seconds];
        if limits.parallel == 0 || counts.contains(&0) || sums.contains(&0) {
            let problem = format!("assistant `{name}`: every limit must be at least 1");
            self.faults.add(settings.name.referenced, problem);
        }
        if !(1..=500).contains(&settings.context.messages) {
            let problem = format!("assistant `{name}`: `context.messages` must be 1 to 500");
            self.faults.add(settings.name.referenced, problem);
        }
        let guardrail = match guardrail {
            None => None,
            Some((Some(model), Some((questions, refusals)))) => Some(Guardrail {
                model,
                questions,
                refusals,
            }),
            Some(_) => return None,
        };
        Some(Assistant {
            name,
            description: settings.description,
            model: model?,
            calls: settings.calls,
            syntax: syntax?,
            tools: settings.tools,
            prompts: prompts?,
            context: settings.context,
            limits,
            guardrail,
            input,
            output,
            approval: settings.approval,
            commands,
            opening,
        })
    }

    fn family(&mut self, name: Option<Spanned<String>>) -> Option<Family> {
        let Some(name) = name else {
            return Some(Family::UNKNOWN);
        };
        let family = name.value.parse();
        if family.is_err() {
            let problem = format!("the family `{}` of models is not supported", name.value);
            self.faults.add(name.referenced, problem);
        }
        family.ok()
    }

    fn syntax(
        &mut self,
        family: Option<Family>,
        template: Option<Spanned<String>>,
    ) -> Option<CallSyntax> {
        let Some(name) = template else {
            return family.map(CallSyntax::from);
        };
        let named = |text: &&&Text| text.path.file_name().is_some_and(|it| *it == *name.value);
        let Some(text) = self.templates.iter().find(named) else {
            let problem = format!(
                "the template `{}` does not exist; name a file *.jinja in the same directory as this file",
                name.value
            );
            self.faults.add(name.referenced, problem);
            return None;
        };
        match CallSyntax::from(family?).with_template(&text.text) {
            Ok(syntax) => Some(syntax),
            Err(problem) => {
                self.faults
                    .add(name.referenced, format!("`{}`: {problem}", name.value));
                None
            }
        }
    }

    fn model(
        &mut self,
        provider: &Spanned<String>,
        model: &Spanned<String>,
        temperature: Option<f64>,
        max_output_tokens: Option<u32>,
    ) -> Option<ModelChoice> {
        let client = self.providers.get(&provider.value).cloned();
        if client.is_none() {
            let problem = format!("the provider `{}` does not exist", provider.value);
            self.faults.add(provider.referenced, problem);
        }
        let client = client.flatten();
        let mut variables = Variables::new(self.variables, &self.directory, self.secret_files);
        let name = match variables.text(&model.value) {
            Ok(name) => name,
            Err(error) => {
                let problem = format!("`model` {error}");
                self.faults.add(model.referenced, problem);
                return None;
            }
        };
        let mut missing = variables.into_missing_names();
        let client = match client? {
            Ok(client) if missing.is_empty() => Ok(client),
            Ok(_) => Err(MissingVariables(missing)),
            Err(MissingVariables(of_provider)) => {
                missing.extend(of_provider);
                Err(MissingVariables(missing))
            }
        };
        Some(ModelChoice {
            client,
            model: name,
            temperature,
            max_output_tokens,
        })
    }

    fn guardrail_model(
        &mut self,
        guardrail: &settings::Guardrail,
        provider: &Spanned<String>,
        model: &Spanned<String>,
    ) -> Option<ModelChoice> {
        self.model(
            guardrail.provider.as_ref().unwrap_or(provider),
            guardrail.model.as_ref().unwrap_or(model),
            Some(0.0),
            Some(16),
        )
    }

    fn guardrail(
        &mut self,
        guardrail: Spanned<settings::Guardrail>,
    ) -> Option<(ByLanguage<Template>, ByLanguage<String>)> {
        let at = guardrail.referenced;
        let spanned = |texts| Spanned::new(texts, at, at);
        let known = &["message"];
        let questions = self.texts(spanned(guardrail.value.questions), |text| {
            Template::parse(text, known)
        });
        let refusals = self.texts(
            spanned(guardrail.value.refusals),
            |text| Ok(text.to_owned()),
        );
        Some((questions?, refusals?))
    }

    /// Parses texts by language. Without `default`, the default is the only language, or English if there are several.
    fn texts<T>(
        &mut self,
        texts: Spanned<Texts>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<ByLanguage<T>> {
        let at = texts.referenced;
        let mut default = None;
        let mut read_texts = BTreeMap::new();
        let mut is_whole = true;
        for (key, text) in texts.value {
            if key == "default" {
                default = Some(text);
                continue;
            }
            let Some(language) = Language::from_code(&key) else {
                let problem = format!("`{key}` is not a language; write two letters such as en");
                self.faults.add(text.referenced, problem);
                is_whole = false;
                continue;
            };
            match read(&text.value) {
                Ok(read) => {
                    read_texts.insert(language.code().to_owned(), read);
                }
                Err(problem) => {
                    self.faults.add(text.referenced, problem);
                    is_whole = false;
                }
            }
        }
        if !is_whole {
            return None;
        }
        let (default, place) = match default {
            Some(default) => (default.value, default.referenced),
            None if read_texts.len() == 1 => {
                (read_texts.keys().next().cloned().unwrap_or_default(), at)
            }
            None => ("en".to_owned(), at),
        };
        let texts = ByLanguage::new(&default, read_texts);
        if texts.is_none() {
            let problem = format!("the text for the default language `{default}` is missing");
            self.faults.add(place, problem);
        }
        texts
    }

    fn checks(&mut self, checks: Vec<settings::Check>) -> Vec<Check> {
        let mut read = Vec::new();
        for check in checks {
            if let Ok(pattern) = Regex::new(&check.pattern.value) {
                read.push(Check {
                    pattern,
                    refusal: check.refusal,
                });
            } else {
                let problem = "`pattern` is not a regular expression";
                self.faults.add(check.pattern.referenced, problem);
            }
        }
        read
    }

    fn command(&mut self, name: String, command: Spanned<settings::Command>) -> Option<Command> {
        let at = command.referenced;
        let command = command.value;
        if !name.starts_with('/') || name.contains(char::is_whitespace) || name.len() < 2 {
            let problem = format!("the command `{name}` is not a single word that begins with `/`");
            self.faults.add(at, problem);
            return None;
        }
        let known: Vec<&str> = command.words.iter().map(String::as_str).collect();
        if known.iter().collect::<BTreeSet<_>>().len() < known.len() {
            let problem = format!("the command `{name}` has a duplicate word");
            self.faults.add(at, problem);
        }
        Some(Command {
            call: self.call(command.tool, command.arguments, &known),
            words: command.words,
            answer: command.answer,
            name,
        })
    }

    fn call(
        &mut self,
        tool: String,
        arguments: BTreeMap<String, Spanned<Value>>,
        known: &[&str],
    ) -> ConfiguredCall {
        let mut filled = BTreeMap::new();
        for (name, value) in arguments {
            match Argument::parse(&value.value, known) {
                Ok(argument) => {
                    filled.insert(name, argument);
                }
                Err(problem) => self.faults.add(value.referenced, problem),
            }
        }
        ConfiguredCall {
            tool,
            arguments: filled,
        }
    }
}
