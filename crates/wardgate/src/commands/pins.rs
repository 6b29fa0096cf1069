//! `wardgate tools diff | approve`: what MCP servers offer, against what was approved of it.

use std::collections::BTreeMap;

use serde_json::json;
use wardgate_domain::{Ambient, mark_invisible};
use wardgate_tool_runner::{Judged, Review, ReviewedUpstream, Selection};

use crate::Failure;
use crate::cli::{Approve, CatalogueFile};

pub(crate) async fn diff(catalogue: &CatalogueFile, json: bool) -> Result<(), Failure> {
    let review = review(catalogue, &Ambient::system()).await?;
    for upstream in review.upstreams() {
        if json {
            print_json(upstream);
        } else {
            print_report(upstream);
        }
    }
    Ok(())
}

pub(crate) async fn approve(arguments: Approve) -> Result<(), Failure> {
    let ambient = Ambient::system();
    let by = arguments.by.ok_or("say who you are with --by NAME")?;
    let selection = match arguments.source {
        Some(source) => Selection::Source(source),
        None if arguments.all_harmless => Selection::AllHarmless,
        None => Selection::Tools(arguments.names),
    };
    let mut review = review(&arguments.catalogue, &ambient).await?;
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

async fn review(catalogue: &CatalogueFile, ambient: &Ambient) -> Result<Review, Failure> {
    Ok(Review::of(&catalogue.file, &BTreeMap::new(), ambient).await?)
}

fn print_report(upstream: &ReviewedUpstream) {
    let source = &upstream.source;
    if let Some(why) = &upstream.unreachable {
        println!("{source}: {}", mark_invisible(why));
        return;
    }
    let is_approved = |judged: &Judged| *judged == Judged::Approved;
    let (approved, others): (Vec<_>, Vec<_>) = upstream
        .tools
        .iter()
        .partition(|tool| is_approved(&tool.judged));
    println!(
        "{source}: {} approved, {} to look at",
        approved.len(),
        others.len()
    );
    for tool in others {
        print!("{}", mark_invisible(&tool.to_string()));
    }
}

fn print_json(upstream: &ReviewedUpstream) {
    let source = &upstream.source;
    if let Some(why) = &upstream.unreachable {
        println!("{}", json!({ "source": source, "unreachable": why }));
    }
    for tool in &upstream.tools {
        let line = json!({
            "source": source,
            "tool": tool.shown,
            "grade": tool.judged.grade(),
            "sha256": tool.definition.as_ref().map(|it| it.digest().to_string()),
            "judged": tool.judged,
        });
        println!("{line}");
    }
}
