//! `wardgate tools`: checks and lists a catalogue without running anything, checks arguments against input schemas, and
//! dispatches to the commands for imports, pins, switches and calls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;
use wardgate_catalogue::{Catalogue, Fault, Pins, lock_path};
use wardgate_domain::{SwitchAction, ToolName, mark_invisible};
use wardgate_policy::PolicySet;
use wardgate_resilience::LimitSettings;

use crate::Failure;
use crate::cli::{ClientOptions, OutputFormat, ToolsArgs, ToolsCommand};
use crate::commands::output::{RowPrinter, print_document};
use crate::commands::terminal::cell;
use crate::commands::{calls, connections, import, pins, switches, validate, warnings};

pub(crate) async fn run(arguments: ToolsArgs) -> Result<(), Failure> {
    match arguments.command {
        ToolsCommand::Check {
            file,
            policies,
            output,
        } => check(&file, policies, output.format())?,
        ToolsCommand::List {
            file,
            output,
            caller,
        } => {
            // A named file is listed, and so is `tools.yaml` in the current directory unless the options name a gateway or
            // a token. Otherwise the callable tools of the gateway are listed.
            let beside = Path::new("tools.yaml");
            let file = file.or_else(|| {
                let is_meant = !caller.names_anything() && beside.exists();
                is_meant.then(|| beside.to_owned())
            });
            match file {
                Some(file) => list_configured(&file, output.format())?,
                None => list_callable(caller, output.format()).await?,
            }
        }
        ToolsCommand::Call(arguments) => calls::call(arguments).await?,
        ToolsCommand::Validate => validate::run(std::io::stdin().lock(), std::io::stdout().lock())?,
        ToolsCommand::Diff { catalogue, output } => pins::diff(&catalogue, output.format()).await?,
        ToolsCommand::Approve(arguments) => pins::approve(arguments).await?,
        ToolsCommand::Import(arguments) => import::run(arguments).await?,
        ToolsCommand::Enable(change) => switches::set(SwitchAction::Enable, change).await?,
        ToolsCommand::Disable(change) => switches::set(SwitchAction::Disable, change).await?,
        ToolsCommand::Reset(change) => switches::set(SwitchAction::Reset, change).await?,
        ToolsCommand::Switches {
            system,
            operator,
            output,
        } => {
            switches::list(&system, &operator, output.format()).await?;
        }
        ToolsCommand::Connections {
            system,
            operator,
            output,
        } => {
            connections::list(&system, &operator, output.format()).await?;
        }
        ToolsCommand::Disconnect(arguments) => connections::remove(arguments).await?,
    }
    Ok(())
}

/// Lists the tools of a catalogue.
fn list_configured(file: &Path, format: OutputFormat) -> Result<(), Failure> {
    let catalogue = load(file)?;
    let mut rows = RowPrinter::stdout(format, None)?;
    for tool in catalogue.tools() {
        let facts = tool.facts();
        let aliases = names(tool.aliases());
        let line = serde_json::json!({
            "name": facts.name.as_str(),
            "aliases": aliases,
            "read_only": facts.read_only,
            "tags": &*facts.tags,
            "definition_digest": facts.definition_digest.to_string(),
            "limits": {
                "concurrency": tool.limits().concurrency,
                "per_caller": tool.limits().per_caller.map(String::from),
            },
        });
        rows.print(&line.to_string(), || {
            let access = if facts.read_only {
                "reads"
            } else {
                "may write"
            };
            let (name, aliases) = (cell(facts.name.as_str()), aliases.join(", "));
            let limits = describe_limits(tool.limits());
            let aliases = mark_invisible(&aliases);
            format!("{name:<32} {access:<10} {limits:<24} {aliases}")
        })?;
    }
    rows.finish()
}

/// Describes the limits of a tool, for example `2 at once, 20/m per caller`.
fn describe_limits(limits: LimitSettings) -> String {
    let at_once = limits
        .concurrency
        .map(|count| format!("{count} concurrent"));
    let rate = limits.per_caller.map(String::from);
    let rate = rate.map(|rate| format!("{rate} per caller"));
    let words: Vec<_> = at_once.into_iter().chain(rate).collect();
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join(", ")
    }
}

/// Lists the tools that the caller may call, as the gateway returns them.
async fn list_callable(caller: ClientOptions, format: OutputFormat) -> Result<(), Failure> {
    #[derive(serde::Deserialize)]
    struct CallableTool {
        name: String,
        description: Option<String>,
    }
    let tools = calls::client(caller, false).await?.list_tools().await?;
    let mut rows = RowPrinter::stdout(format, None)?;
    for tool in tools {
        let CallableTool { name, description } = serde_json::from_str(tool.get())?;
        let description = description.unwrap_or_default();
        rows.print(tool.get(), || {
            let first = description.lines().next().unwrap_or_default();
            format!("{:<32} {}", cell(&name), mark_invisible(first))
        })?;
    }
    rows.finish()
}

fn check(file: &Path, policies: Option<PathBuf>, format: OutputFormat) -> Result<(), Failure> {
    let catalogue = load(file)?;
    let pins = Pins::load(&lock_path(file)).map_err(|fault| unusable(file, &[fault]))?;
    let beside = file.with_file_name("policies");
    let policies = policies.or_else(|| beside.is_dir().then_some(beside));
    let policies = policies.map(|directory| PolicySet::load(&directory));
    let policies = policies.transpose()?;
    let found = warnings::collect_warnings(&catalogue, policies.as_ref(), Some(&pins));
    warnings::print_warnings(&found);
    let tools = catalogue.tools().len();
    let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
    let document = json!({ "tools": tools, "warnings": texts }).to_string();
    print_document(format, &document, || {
        format!(
            "ok: {tools} tools{}\n",
            warnings::describe_count(found.len())
        )
    })
}

fn names(names: &[ToolName]) -> Vec<&str> {
    names.iter().map(ToolName::as_str).collect()
}

pub(super) fn load(file: &Path) -> Result<Catalogue, Failure> {
    Catalogue::load(file, &BTreeMap::new()).map_err(|faults| unusable(file, &faults))
}

/// Loads a catalogue for a command that opens no source. The variables of connections need not be set.
pub(super) fn load_definitions(file: &Path) -> Result<Catalogue, Failure> {
    Catalogue::load_definitions(file).map_err(|faults| unusable(file, &faults))
}

fn unusable(file: &Path, faults: &[Fault]) -> Failure {
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    format!("{} cannot be used:\n{}", file.display(), lines.join("\n")).into()
}
