//! The methods `prompts/list`, `resources/list`, `resources/templates/list` and `skills/list`: the entries that the caller may
//! use, one page at a time.
//!
//! A prompt or resource is listed if the caller may use it by its name, a template if the caller may use anything of its
//! source. A list only informs: every use of an entry is authorized again.

use std::sync::Arc;

use wardgate_domain::{MemoryMethod, OfferKind};
use wardgate_mcp::Version;
use wardgate_mcp_server::{Cursor, JsonRpcRequest, McpResponse, RpcError};
use wardgate_rpc::client::ContentSource;

use super::reader::{self, ContentReader};
use super::skill;
use crate::authority::Authority;
use crate::caching;
use crate::catalogue::{CatalogueIndex, IndexEntry, MISSING_UPSTREAMS, View};
use crate::discovery::Discovery;
use crate::memory::{self, ConversationMemory};
use crate::post::Post;

/// Maximum number of entries on a page.
const PAGE: usize = 100;

/// Maximum number of skills on a page. Each skill may have many files.
const PAGE_OF_SKILLS: usize = 20;

pub(super) async fn prompts(
    discovery: &Discovery,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    version: Version,
) -> Result<McpResponse, RpcError> {
    let cursor = after(request)?;
    let lister = ContentLister::new(discovery, post, OfferKind::Prompts, |_| true).await?;
    let entries = &lister.catalogue.content().prompts;
    let page = lister.page(entries, cursor, version).await?;
    Ok(page.answer(request, version, "prompts"))
}

pub(super) async fn resources(
    discovery: &Discovery,
    memory: Option<&Arc<ConversationMemory>>,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    version: Version,
) -> Result<McpResponse, RpcError> {
    let after = match Cursor::from_request(request)? {
        None => None,
        Some(Cursor::After(name)) => Some(name),
        Some(Cursor::Memory(_)) => {
            let memory = memory.ok_or_else(unknown_cursor)?;
            let listing = memory.answer(post, request, version, MemoryMethod::List);
            return listing.await;
        }
    };
    let lister = ContentLister::new(discovery, post, OfferKind::Resources, |_| true).await?;
    let entries = &lister.catalogue.content().resources;
    let page = lister.page(entries, after, version).await?;
    let Some(memory) = memory.filter(|_| page.next.is_none()) else {
        return Ok(page.answer(request, version, "resources"));
    };
    let listed = memory::PrecedingResources {
        entries: page.entries,
        meta: page.meta,
    };
    Ok(memory.list_behind(post, request, version, listed).await)
}

pub(super) async fn templates(
    discovery: &Discovery,
    has_conversations: bool,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    version: Version,
) -> Result<McpResponse, RpcError> {
    let cursor = after(request)?;
    let lister = ContentLister::new(discovery, post, OfferKind::Resources, |_| true).await?;
    let entries = &lister.catalogue.content().templates;
    let mut page = lister.page_of_templates(entries, cursor.as_deref(), version);
    if cursor.is_none() && has_conversations {
        page.entries.insert(0, memory::template().to_string());
    }
    Ok(page.answer(request, version, "resourceTemplates"))
}

pub(super) async fn skills(
    discovery: &Discovery,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    version: Version,
) -> Result<McpResponse, RpcError> {
    let cursor = after(request)?;
    let has_skills = |source: &ContentSource| source.skills.is_some();
    let lister = ContentLister::new(discovery, post, OfferKind::Resources, has_skills).await?;
    let entries = &lister.catalogue.content().skills;
    let page = lister
        .page_of_skills(entries, cursor.as_deref(), version)
        .await?;
    Ok(page.answer(request, version, "skills"))
}

/// Returns the name of the entry after which the list continues. A cursor into the conversations is an error.
fn after(request: &JsonRpcRequest<'_>) -> Result<Option<String>, RpcError> {
    match Cursor::from_request(request)? {
        None => Ok(None),
        Some(Cursor::After(name)) => Ok(Some(name)),
        Some(Cursor::Memory(_)) => Err(unknown_cursor()),
    }
}

fn unknown_cursor() -> RpcError {
    RpcError::invalid_params("`params.cursor` is unknown: it belongs to another list")
}

/// Lists the content of one kind for one caller.
struct ContentLister<'a> {
    authority: &'a Authority,
    post: &'a Post,
    catalogue: Arc<CatalogueIndex>,
    kind: OfferKind,
    /// Selects the sources that are included in the list.
    is_asked: fn(&ContentSource) -> bool,
    /// The sources of which the caller may use anything.
    visible: Vec<String>,
}

/// A page of a list.
struct ListPage {
    entries: Vec<String>,
    next: Option<Cursor>,
    meta: String,
    /// The members that tell a modern client how long it may keep the page.
    hints: String,
}

impl<'a> ContentLister<'a> {
    async fn new(
        discovery: &'a Discovery,
        post: &'a Post,
        kind: OfferKind,
        is_asked: fn(&ContentSource) -> bool,
    ) -> Result<Self, RpcError> {
        let catalogue = discovery.catalogue().require_current()?;
        let authority = discovery.authority();
        let facts = catalogue.content().sources(kind).filter_map(|source| {
            let is_there = post.view.has(source) && is_asked(source);
            let source = catalogue.source(&source.name).filter(|_| is_there)?;
            let facts = source.facts.get(&kind)?;
            source.switches.allow(&post.caller).then_some(facts)
        });
        let visible = authority.visible(&post.caller, facts).await;
        let visible = visible.map_err(|error| authority.undecided_error(&error))?;
        Ok(Self {
            authority,
            post,
            catalogue,
            kind,
            is_asked,
            visible,
        })
    }

    /// Returns those of `entries` after `after` whose source is visible to the caller.
    fn candidates<'e>(
        &self,
        entries: &'e [IndexEntry],
        after: Option<&str>,
    ) -> impl Iterator<Item = &'e IndexEntry> {
        let start = after.map_or(0, |after| {
            entries.partition_point(|entry| entry.name.as_str() <= after)
        });
        entries[start..]
            .iter()
            .filter(|entry| self.visible.contains(&entry.source))
    }

    /// Returns a page of the entries that the caller may use. Each entry is authorized separately, but a decision that does not
    /// depend on the name holds for all entries of the source, so most pages need one decision.
    async fn page(
        &self,
        entries: &[IndexEntry],
        after: Option<String>,
        version: Version,
    ) -> Result<ListPage, RpcError> {
        let candidates: Vec<_> = self.candidates(entries, after.as_deref()).collect();
        let allowed = reader::filter_allowed(&candidates, PAGE, |entry| self.may_have(entry));
        Ok(self.made_of(allowed.await?, version))
    }

    fn page_of_templates(
        &self,
        entries: &[IndexEntry],
        after: Option<&str>,
        version: Version,
    ) -> ListPage {
        let allowed = self.candidates(entries, after).take(PAGE + 1).collect();
        self.made_of(allowed, version)
    }

    /// Returns a page of skills, each with those of its files that the caller may read.
    async fn page_of_skills(
        &self,
        entries: &[IndexEntry],
        after: Option<&str>,
        version: Version,
    ) -> Result<ListPage, RpcError> {
        let (mut shown, mut last, mut next) = (Vec::new(), None, None);
        for entry in self.candidates(entries, after) {
            let Some(skill) = self.skill(entry, version).await? else {
                continue;
            };
            if shown.len() == PAGE_OF_SKILLS {
                next = last.map(Cursor::After);
                break;
            }
            last = Some(entry.name.clone());
            shown.push(skill);
        }
        Ok(ListPage {
            entries: shown,
            next,
            meta: self.missing_upstreams(),
            hints: self.hints(),
        })
    }

    /// Returns the skill, or `None` if the caller may not read its SKILL.md unredacted.
    async fn skill(
        &self,
        entry: &IndexEntry,
        version: Version,
    ) -> Result<Option<String>, RpcError> {
        let Some(reader) = self.reader(entry) else {
            return Ok(None);
        };
        let right = reader.right(&entry.own_name).await?;
        if !right.is_some_and(|grant| skill::sees_all(&grant, reader.facts)) {
            return Ok(None);
        }
        // Files are authorized by the catalogue's names, which are the same for all views.
        let whole = entry.definition(&View::Everything, version).into_owned();
        let shown = skill::filter_files(&reader, whole).await?;
        Ok(Some(self.post.view.skill(shown)))
    }

    /// Returns a page of the first entries of `allowed`, with a cursor if there are more of them.
    fn made_of(&self, mut allowed: Vec<&IndexEntry>, version: Version) -> ListPage {
        let has_more = allowed.len() > PAGE;
        allowed.truncate(PAGE);
        let last = allowed.last().filter(|_| has_more);
        ListPage {
            next: last.map(|entry| Cursor::After(entry.name.clone())),
            meta: self.missing_upstreams(),
            hints: self.hints(),
            entries: allowed
                .into_iter()
                .map(|entry| entry.definition(&self.post.view, version).into_owned())
                .collect(),
        }
    }

    async fn may_have(&self, entry: &IndexEntry) -> Result<bool, RpcError> {
        let Some(reader) = self.reader(entry) else {
            return Ok(false);
        };
        Ok(reader.right(&entry.own_name).await?.is_some())
    }

    /// Returns the reader of an entry, or `None` if its source no longer exists.
    fn reader(&self, entry: &IndexEntry) -> Option<ContentReader<'_>> {
        let facts = self
            .catalogue
            .source(&entry.source)?
            .facts
            .get(&self.kind)?;
        Some(ContentReader {
            authority: self.authority,
            caller: &self.post.caller,
            client_ip: &self.post.client_ip,
            facts,
        })
    }

    fn hints(&self) -> String {
        let visible = self.visible.iter();
        let sources = visible.filter_map(|name| self.catalogue.source(name));
        caching::hints(self.kind, sources.map(Arc::as_ref))
    }

    /// Returns the member of `_meta` that names the upstreams that do not answer, among those visible to the caller.
    fn missing_upstreams(&self) -> String {
        let sources = self.catalogue.content().sources(self.kind);
        let missing: Vec<_> = sources
            .filter(|source| (self.is_asked)(source))
            .filter(|source| source.is_missing && self.visible.contains(&source.name))
            .map(|source| source.name.as_str())
            .collect();
        if missing.is_empty() {
            return String::new();
        }
        format!(r#""{MISSING_UPSTREAMS}":{}"#, serde_json::json!(missing))
    }
}

impl ListPage {
    fn answer(self, request: &JsonRpcRequest<'_>, version: Version, list: &str) -> McpResponse {
        let mut members = format!(r#""{list}":[{}]"#, self.entries.join(","));
        if let Some(next) = self.next {
            members += &format!(r#","nextCursor":"{}""#, next.write());
        }
        if version.is_modern() {
            members += &self.hints;
        }
        McpResponse::result_with_meta(request.id, version, &members, &self.meta)
    }
}
