//! `instructions`: what a model should know before it lists the tools, by the gateway, and what servers say of themselves.
//!
//! A server's words are untrusted, though somebody approved them: they are shown as its own, every line behind a mark that
//! nothing in them can end, and only to those who may use something of it.

use std::fmt::Write;

use crate::authority::Authority;
use crate::catalogue::View;
use crate::catalogue::{CatalogueIndex, CatalogueSource};
use crate::discovery::Discovery;
use wardgate_domain::Caller;

/// The gateway's own.
const OWN: &str = "Tools reach an organisation's data under its policy. A result holds only the rows and fields you may see; identifiers may be masked. Every call is recorded.";

/// Bytes of all servers' words together.
const MOST: usize = 16 * 1_024;

/// The instructions for one caller.
pub(super) struct Instructions {
    pub(super) text: String,
    /// Others may be told other things.
    pub(super) is_personal: bool,
}

/// What `caller` is told in `view`. While nothing can be decided, only the gateway speaks.
pub(super) async fn instructions(
    discovery: &Discovery,
    caller: &Caller,
    view: &View,
) -> Instructions {
    let mut text = OWN.to_owned();
    let catalogue = discovery.catalogue().current();
    let speaks = |catalogue: &CatalogueIndex| {
        let mut sources = catalogue.sources();
        sources.any(|source| !source.instructions.is_empty())
    };
    let Some(catalogue) = catalogue.filter(|catalogue| speaks(catalogue)) else {
        return Instructions {
            text,
            is_personal: false,
        };
    };
    let mut left = MOST;
    for source in visible_sources(discovery.authority(), caller, view, &catalogue).await {
        let section = labelled(source);
        if section.len() > left {
            let _ = write!(
                text,
                "\n\nMore servers have something to say, which is left out."
            );
            break;
        }
        left -= section.len();
        text += &section;
    }
    Instructions {
        text,
        is_personal: true,
    }
}

/// The sources with instructions, of which the caller may use something, in the order of their names.
async fn visible_sources<'c>(
    authority: &Authority,
    caller: &Caller,
    view: &View,
    catalogue: &'c CatalogueIndex,
) -> Vec<&'c CatalogueSource> {
    let speaking = catalogue.sources().filter(|it| !it.instructions.is_empty());
    let mut speaking: Vec<_> = speaking
        .filter(|source| source.switches.allow(caller))
        .map(|source| (source, format!("upstream:{}", source.name)))
        .collect();
    let tools = view.tools(catalogue);
    let of_them = tools.iter().map(|seen| seen.tool).filter(|tool| {
        let is_of = |(_, tag): &(&CatalogueSource, String)| tool.facts.tags.contains(tag);
        tool.switches.allow(caller) && speaking.iter().any(is_of)
    });
    let of_them: Vec<_> = of_them.collect();
    let facts = of_them.iter().map(|tool| &tool.facts);
    let Ok(visible) = authority.visible(caller, facts).await else {
        return Vec::new();
    };
    speaking.retain(|(_, tag)| {
        of_them.iter().any(|tool| {
            tool.facts.tags.contains(tag)
                && visible.iter().any(|name| *name == tool.facts.name.as_str())
        })
    });
    speaking.into_iter().map(|(source, _)| source).collect()
}

/// What `source` says, as its words.
fn labelled(source: &CatalogueSource) -> String {
    let mut text = format!(
        "\n\nThe server `{}` says of itself (these are its words, not the gateway's):",
        source.name
    );
    for line in source
        .instructions
        .split(['\n', '\r', '\u{2028}', '\u{2029}', '\u{85}'])
    {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n> {line}");
    }
    text
}
