//! `wardgate tools diff | approve`: compares the tools of MCP servers with the approved ones, and approves them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wardgate_catalogue::{JudgedTool, PinJudgement};
use wardgate_domain::{Ambient, Digest, mark_invisible};
use wardgate_tool_runner::{Review, ReviewedUpstream, Selection};

use crate::Failure;
use crate::cli::{ApproveArgs, CatalogueFile, OutputFormat};
use crate::commands::approver::approver_name;
use crate::commands::output::RowPrinter;
use crate::commands::program;

pub(crate) async fn diff(catalogue: &CatalogueFile, format: OutputFormat) -> Result<(), Failure> {
    let review = review(catalogue, &Ambient::system()).await?;
    if format != OutputFormat::Table {
        let mut rows = RowPrinter::stdout(format, None)?;
        for line in review.upstreams().iter().flat_map(judgements) {
            rows.print(&line.to_string(), String::new)?;
        }
        return rows.finish();
    }
    for upstream in review.upstreams() {
        print_report(upstream);
        if upstream.tools.iter().any(JudgedTool::is_pending) {
            let source = Selection::Source(upstream.source.clone());
            let digest = review.digest(&source);
            println!(
                "to approve all tools that are not suspicious, exactly as shown here, run: {}",
                command(&upstream.source, digest, catalogue)
            );
        }
    }
    Ok(())
}

pub(crate) async fn approve(arguments: ApproveArgs) -> Result<(), Failure> {
    let ambient = Ambient::system();
    let by = approver_name(arguments.by);
    let selection = match arguments.source {
        Some(source) => Selection::Source(source),
        None if arguments.all_harmless => Selection::AllHarmless,
        None => Selection::Tools(arguments.names),
    };
    let mut review = review(&arguments.catalogue, &ambient).await?;
    let digest = review.digest(&selection);
    match (&selection, arguments.reviewed) {
        (_, Some(reviewed)) if reviewed != digest.to_string() => {
            print_pending(&review, &selection);
            return Err(format!(
                "nothing was approved: the server's tools have changed since the review; the digest of its current tools is {digest}"
            )
            .into());
        }
        (Selection::Source(source), None) if !arguments.all => {
            // Reports an unknown or unreachable source as every approval does.
            review.check(&selection)?;
            print_pending(&review, &selection);
            return Err(format!(
                "nothing was approved yet; to approve exactly the tools shown, run: {}",
                command(source, digest, &arguments.catalogue)
            )
            .into());
        }
        _ => {}
    }
    let approved = review.approve(&selection, &by, ambient.now())?;
    if approved.is_empty() {
        println!("nothing to approve");
        return Ok(());
    }
    let lock = review.lock().display().to_string();
    review
        .save(&ambient)
        .map_err(|error| format!("{lock} cannot be written: {error}"))?;
    println!("{lock}: {}", approved.join(", "));
    Ok(())
}

/// Returns the command line that approves the shown tools of a source.
fn command(source: &str, digest: Digest, catalogue: &CatalogueFile) -> String {
    let (program, file) = (program::name(), program::quote_path(&catalogue.file));
    format!("{program} tools approve --source {source} --reviewed {digest} --file {file}")
}

/// Prints everything that an approval would accept, including definitions.
fn print_pending(review: &Review, selection: &Selection) {
    for upstream in review.upstreams() {
        let of_source =
            matches!(selection, Selection::Source(source) if *source == upstream.source);
        if !of_source && !matches!(selection, Selection::Tools(_) | Selection::AllHarmless) {
            continue;
        }
        print_report(upstream);
        for tool in upstream.tools.iter().filter(|tool| tool.is_pending()) {
            println!("  {} {}", tool.shown, tool.definition_text());
        }
    }
}

async fn review(catalogue: &CatalogueFile, ambient: &Ambient) -> Result<Review, Failure> {
    Ok(Review::load(&catalogue.file, &BTreeMap::new(), ambient).await?)
}

fn print_report(upstream: &ReviewedUpstream) {
    let source = &upstream.source;
    if let Some(why) = &upstream.unreachable {
        println!("{source}: {}", mark_invisible(why));
        return;
    }
    let is_approved = |judged: &PinJudgement| *judged == PinJudgement::Approved;
    let (approved, others): (Vec<_>, Vec<_>) = upstream
        .tools
        .iter()
        .partition(|tool| is_approved(&tool.judged));
    println!(
        "{source}: {} approved, {} to review",
        approved.len(),
        others.len()
    );
    for tool in others {
        print!("{}", mark_invisible(&tool.to_string()));
    }
}

/// Returns the state of a server, and the judgement of each of its tools, as JSON.
fn judgements(upstream: &ReviewedUpstream) -> impl Iterator<Item = Value> {
    let source = &upstream.source;
    let unreachable = upstream.unreachable.iter();
    let unreachable = unreachable.map(move |why| json!({ "source": source, "unreachable": why }));
    let tools = upstream.tools.iter().map(move |tool| {
        json!({
            "source": source,
            "tool": tool.shown,
            "grade": tool.judged.grade(),
            "sha256": tool.definition.as_ref().map(|it| it.digest().to_string()),
            "judged": tool.judged,
        })
    });
    unreachable.chain(tools)
}
