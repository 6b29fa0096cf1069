//! The `instructions` of the server: what a model should know before it lists the tools, by the gateway and by upstreams.
//!
//! The instructions of a server are untrusted, although they were approved. They are marked as the server's words, every line
//! begins with a quotation mark that no text can end, and only callers who may use a tool of the server receive them.

use std::fmt::Write;

use crate::authority::Authority;
use crate::catalogue::{CatalogueIndex, CatalogueSource, View};
use crate::discovery::Discovery;
use wardgate_domain::Caller;

/// The instructions of the gateway itself.
const OWN: &str = "Tools give access to an organisation's data under its policy. A result contains only the rows and fields you may see; \
                   identifiers may be masked. Every call is recorded.";

/// Maximum size of the instructions of all servers together, in bytes.
const MOST: usize = 16 * 1_024;

/// The instructions for one caller.
pub(super) struct Instructions {
    pub(super) text: String,
    /// Whether other callers may receive different instructions.
    pub(super) is_personal: bool,
}

/// Returns the instructions for `caller` in `view`. If the policy service does not decide, they are the gateway's only.
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
        let section = label_instructions(source);
        if section.len() > left {
            let _ = write!(text, "\n\nThe instructions of further servers are omitted.");
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

/// Returns the sources with instructions of which the caller may use a tool, in the order of their names.
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

/// Returns the instructions of `source`, marked as its words.
fn label_instructions(source: &CatalogueSource) -> String {
    let mut text = format!(
        "\n\nThe server `{}` describes itself as follows (the text is the server's, not the gateway's):",
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
