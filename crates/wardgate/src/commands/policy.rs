//! `wardgate policy`: runs the policy service, and checks, tests, explains, compares and replays policies.

mod bundle;
mod diff;
mod explain;
mod replay;
mod shadow;
mod test;

use std::path::{Path, PathBuf};

use serde_json::json;
use wardgate_catalogue::{Catalogue, Offers};
use wardgate_catalogue_import::RowTypes;
use wardgate_domain::{ToolFacts, mark_invisible};
use wardgate_policy::{PolicySet, Simulator};
use wardgate_redact::ConfiguredForms;

use crate::Failure;
use crate::cli::{LogVerbosity, OutputFormat, PolicyArgs, PolicyCommand};
use crate::commands::output::print_document;
use crate::commands::{classes, serve, tools, warnings};

pub(crate) async fn run(arguments: PolicyArgs, verbosity: LogVerbosity) -> Result<(), Failure> {
    match (arguments.command, arguments.config) {
        (
            Some(PolicyCommand::Classes {
                tools: file,
                output,
            }),
            _,
        ) => {
            let catalogue = file
                .map(|file| tools::load_definitions(&file))
                .transpose()?;
            let configured = catalogue.as_ref().map(Catalogue::forms);
            let configured = configured.map_or(ConfiguredForms::NONE, AsRef::as_ref);
            classes::print(configured, output.format())
        }
        (Some(PolicyCommand::Schema { tools: file }), _) => {
            let catalogue = tools::load(&file)?;
            let RowTypes { schema, notes } = wardgate_catalogue_import::row_types(&catalogue).await;
            for note in notes {
                eprintln!("note: {note}");
            }
            print!("{schema}");
            Ok(())
        }
        (
            Some(PolicyCommand::Check {
                directory,
                tools,
                roles,
                output,
            }),
            _,
        ) => check(&directory, tools.as_deref(), &roles, output.format()),
        (Some(PolicyCommand::Test(arguments)), _) => test::run(&arguments),
        (Some(PolicyCommand::Bundle { command }), _) => bundle::run(&command),
        (Some(PolicyCommand::Explain(arguments)), _) => explain::run(&arguments).await,
        (Some(PolicyCommand::Diff(arguments)), _) => diff::run(&arguments),
        (Some(PolicyCommand::Replay(arguments)), _) => replay::run(&arguments, verbosity).await,
        (Some(PolicyCommand::Shadow(arguments)), _) => shadow::run(arguments).await,
        (None, Some(config)) => serve::policy(&config, verbosity).await,
        (None, None) => Err("specify a configuration file with --config".into()),
    }
}

/// A policy set, and warnings about it that were printed.
struct LintedPolicies {
    set: PolicySet,
    warnings: Vec<String>,
}

/// Loads a directory of policies and prints warnings about it.
fn lint(
    directory: &Path,
    tools: Option<&Path>,
    roles: &[String],
) -> Result<LintedPolicies, Failure> {
    let set = PolicySet::load(directory)?;
    let mut warnings = Vec::new();
    let mut offers = Vec::new();
    if let Some(file) = tools {
        let catalogue = tools::load_definitions(file)?;
        let found = warnings::collect_warnings(&catalogue, Some(&set), None);
        warnings.extend(found.iter().map(ToString::to_string));
        offers = offers_of(&catalogue);
    }
    let linted = set.lint(&offers, roles);
    warnings.splice(0..0, linted.iter().map(ToString::to_string));
    for warning in &warnings {
        eprintln!("warning: {}", mark_invisible(warning));
    }
    Ok(LintedPolicies { set, warnings })
}

fn check(
    directory: &Path,
    tools: Option<&Path>,
    roles: &[String],
    format: OutputFormat,
) -> Result<(), Failure> {
    let LintedPolicies { set, warnings } = lint(directory, tools, roles)?;
    let hash = set.hash().to_string();
    let document = json!({ "policy_hash": hash, "warnings": warnings }).to_string();
    print_document(format, &document, || {
        let count = warnings::describe_count(warnings.len());
        format!("ok: policy hash {hash}{count}\n")
    })
}

fn simulator(directory: &Path) -> Result<Simulator, Failure> {
    Ok(Simulator::new(PolicySet::load(directory)?))
}

/// Returns the tools and sources of the named catalogue, or of the one beside the policies. Returns an empty list if there
/// is neither.
fn offers(named: Option<&Path>, policies: &Path) -> Result<Vec<ToolFacts>, Failure> {
    let file = match named {
        Some(file) => file.to_owned(),
        None => match beside(policies) {
            Some(file) => file,
            None => return Ok(Vec::new()),
        },
    };
    Ok(offers_of(&tools::load_definitions(&file)?))
}

fn offers_of(catalogue: &Catalogue) -> Vec<ToolFacts> {
    let tools = catalogue.tools();
    let mut offers: Vec<_> = tools.iter().map(|tool| tool.facts().clone()).collect();
    for source in catalogue.sources() {
        offers.extend(
            Offers::from_source(source, tools)
                .into_iter()
                .flat_map(|of| of.facts),
        );
    }
    offers
}

/// Returns the path of the catalogue beside a directory of policies, if it exists.
fn beside(policies: &Path) -> Option<PathBuf> {
    let directory = policies.canonicalize().ok()?;
    let parent = directory.parent()?;
    let found = [parent.join("tools.yaml"), parent.join("tools")];
    found.into_iter().find(|path| path.exists())
}
