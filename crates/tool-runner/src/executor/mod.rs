//! Executors, which run tools. There is one module per kind, chosen by `execute.type`.
//!
//! ```text
//!   tools.yaml ─▶ Plan ─▶ open(plan, sources) ─▶ Executor ─▶ run(invocation, output)
//!                 checked, no connection          rows, documents or content, as they come
//! ```

mod command;
mod grpc;
mod http;
mod jsonrpc;
mod mcp;
mod output;
mod query;
mod sql;
#[cfg(test)]
mod testing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cedar_policy::PolicySet;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::time::Instant;
use wardgate_domain::{Ambient, Caller};
use wardgate_rpc::client::MemoryClient;

use crate::Error;
use crate::executor_error::ExecutorError;
use crate::interaction::Elicitation;
use crate::large_results::LargeResults;
use crate::platform::Platform;
use crate::pushdown::PushedCondition;
use crate::store::ToolRunnerStore;
use wardgate_catalogue::plan::Plan;
use wardgate_catalogue::{SourceKind, SourceSettings};
use wardgate_egress::{AuthSettings, OpenAuth, UserGrants};
use wardgate_grpc_json::GrpcServer;
use wardgate_mcp_client::Upstream;
use wardgate_resilience::SourceGuard;
use wardgate_sql::Database;

pub(crate) use http::HttpSource;
pub(crate) use output::{Audience, Caps, Output, RetainedRows, RetentionLimit, WithheldRows};

/// Opens the executor of `plan`.
pub(crate) fn open(plan: &Plan, sources: &Sources) -> Result<Arc<dyn Executor>, Error> {
    match plan {
        Plan::Command(plan) => Ok(command::open(plan)),
        Plan::Grpc(plan) => grpc::open(plan, sources),
        Plan::Http(plan) => http::open(plan, sources),
        Plan::JsonRpc(plan) => jsonrpc::open(plan, sources),
        Plan::Mcp(plan) => mcp::open(plan, sources),
        Plan::Query(plan) => query::open(*plan, sources),
        Plan::Sql(plan) => sql::open(plan, sources),
    }
}

/// An executor, which runs one configured tool.
pub(crate) trait Executor: Send + Sync {
    /// Runs the tool and passes its output to `out` as it arrives. Dropping the future stops the work, wherever it is
    /// done.
    fn run<'a>(
        &'a self,
        call: &'a Invocation<'a>,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>>;

    /// Translates the policies of a row rule into the language of the source. Returns `None` if the source cannot
    /// filter rows itself. `expressions` maps an attribute to its expression in the source.
    fn push_down(&self, _: &PolicySet, _: &BTreeMap<String, String>) -> Option<PushedCondition> {
        None
    }
}

/// One call, as an executor sees it.
pub(crate) struct Invocation<'a> {
    pub(crate) caller: &'a Caller,
    /// The caller's own token, only for sources that exchange it for one of their own.
    pub(crate) caller_token: Option<&'a str>,
    /// The arguments after validation, with defaults and derived values added.
    pub(crate) arguments: &'a Map<String, Value>,
    /// The arguments as they were received: one strict JSON object.
    pub(crate) raw_arguments: &'a Bytes,
    pub(crate) deadline: Instant,
    pub(crate) read_only: bool,
    pub(crate) pushed: Option<&'a PushedCondition>,
    /// Whether the row rule may withhold rows that the source uses, so that limits have to be applied after the rule.
    pub(crate) may_withhold: bool,
    /// The caller's stored results that were too large for a response.
    pub(crate) large_results: LargeResults<'a>,
    /// The exchange with the client, or `None` if the client cannot take part.
    pub(crate) elicitation: Option<&'a Elicitation<'a>>,
}

/// The open sources of a catalogue, and the other services that executors use.
#[derive(Clone)]
pub(crate) struct Sources {
    platform: Arc<Platform>,
    memory: Option<MemoryClient>,
    /// The store for callers' tokens.
    store: Option<ToolRunnerStore>,
    open: BTreeMap<String, OpenSource>,
}

#[derive(Clone)]
struct OpenSource {
    settings: SourceSettings,
    per_user: Option<Arc<UserGrants>>,
    limit: Duration,
    source: ExecutorSource,
    guard: Arc<SourceGuard>,
}

/// The resource that an executor works on. Nothing is connected before its first use.
#[derive(Clone)]
pub(crate) enum ExecutorSource {
    Sql(Arc<Database>),
    Http(Arc<HttpSource>),
    Grpc(Arc<GrpcServer>),
    Mcp(Arc<Upstream>),
    /// Contents in memory, which [`crate::content`] serves.
    Content,
}

impl Sources {
    pub(crate) fn new(
        platform: &Arc<Platform>,
        memory: Option<MemoryClient>,
        store: Option<ToolRunnerStore>,
    ) -> Self {
        Self {
            platform: Arc::clone(platform),
            memory,
            store,
            open: BTreeMap::new(),
        }
    }

    /// Opens `settings`, or reuses the source of `previous` if its settings and limit are the same. `limit` is the
    /// longest time limit of the tools that use the source.
    pub(crate) fn open(
        &mut self,
        settings: SourceSettings,
        limit: Duration,
        ambient: &Ambient,
        previous: Option<&Self>,
    ) -> Result<(), Error> {
        let kept = previous
            .and_then(|previous| previous.open.get(&settings.name))
            .filter(|open| open.settings == settings && open.limit == limit);
        let name = settings.name.clone();
        let (source, guard, per_user) = if let Some(open) = kept {
            let guard = Arc::clone(&open.guard);
            (open.source.clone(), guard, open.per_user.clone())
        } else {
            let guard = SourceGuard::new(
                name.clone(),
                settings.retry.clone(),
                settings.breaker.clone(),
                ambient.clone(),
            );
            let mut opened = settings.clone();
            let per_user = self.per_user_of(&mut opened, ambient);
            let source = ExecutorSource::open(&opened, limit, ambient)?;
            (source, Arc::new(guard), per_user)
        };
        self.open.insert(
            name,
            OpenSource {
                settings,
                per_user,
                limit,
                source,
                guard,
            },
        );
        Ok(())
    }

    /// Opens the credentials that callers grant, and replaces the authentication in `settings` with them. Returns
    /// `None` if the source does not use such credentials.
    fn per_user_of(
        &self,
        settings: &mut SourceSettings,
        ambient: &Ambient,
    ) -> Option<Arc<UserGrants>> {
        let name = settings.name.clone();
        let store = self.store.clone()?;
        let http = settings.kind.http_mut()?;
        let AuthSettings::AuthorizationCode(code) = &http.client.auth else {
            return None;
        };
        let limits = &http.client.egress;
        let per_user = UserGrants::open(&name, &http.url, code, limits, Arc::new(store), ambient);
        let per_user = Arc::new(per_user);
        http.client.auth = AuthSettings::Open(OpenAuth::PerUser(Arc::clone(&per_user)));
        Some(per_user)
    }

    /// Returns the grants of callers to the named source.
    pub(crate) fn per_user(&self, name: &str) -> Option<&Arc<UserGrants>> {
        self.open.get(name)?.per_user.as_ref()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.open.contains_key(name)
    }

    /// Returns the guard of the named source.
    pub(crate) fn guard(&self, name: &str) -> Option<&Arc<SourceGuard>> {
        self.open.get(name).map(|open| &open.guard)
    }

    /// Returns every source with its guard, sorted by name.
    pub(crate) fn guards(&self) -> impl Iterator<Item = (&str, &SourceGuard)> {
        let open = self.open.iter();
        open.map(|(name, open)| (name.as_str(), &*open.guard))
    }

    /// Returns the client of the memory service, which has the remembered conversations.
    pub(crate) fn memory(&self) -> Result<&MemoryClient, Error> {
        self.memory.as_ref().ok_or(Error::NoMemory)
    }

    pub(crate) fn platform(&self) -> &Arc<Platform> {
        &self.platform
    }

    /// Returns every database with its name, sorted by name.
    pub(crate) fn databases(&self) -> impl Iterator<Item = (&str, Arc<Database>)> {
        self.open
            .iter()
            .filter_map(|(name, open)| match &open.source {
                ExecutorSource::Sql(database) => Some((name.as_str(), Arc::clone(database))),
                ExecutorSource::Http(_)
                | ExecutorSource::Grpc(_)
                | ExecutorSource::Mcp(_)
                | ExecutorSource::Content => None,
            })
    }

    /// Returns the database of that name.
    pub(crate) fn sql(&self, name: &str) -> Result<Arc<Database>, Error> {
        match self.open.get(name).map(|open| &open.source) {
            Some(ExecutorSource::Sql(database)) => Ok(Arc::clone(database)),
            _ => Err(Error::NoSource(name.to_owned())),
        }
    }

    /// Returns the MCP server of that name.
    pub(crate) fn mcp(&self, name: &str) -> Result<Arc<Upstream>, Error> {
        match self.open.get(name).map(|open| &open.source) {
            Some(ExecutorSource::Mcp(upstream)) => Ok(Arc::clone(upstream)),
            _ => Err(Error::NoSource(name.to_owned())),
        }
    }

    /// Returns the MCP server of that name and its guard.
    pub(crate) fn server(&self, name: &str) -> Result<(Arc<Upstream>, Arc<SourceGuard>), Error> {
        let upstream = self.mcp(name)?;
        let guard = self.guard(name);
        let guard = guard.ok_or_else(|| Error::NoSource(name.to_owned()))?;
        Ok((upstream, Arc::clone(guard)))
    }

    /// Returns every MCP server.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.open.values().filter_map(|open| match &open.source {
            ExecutorSource::Mcp(upstream) => Some(upstream),
            ExecutorSource::Sql(_)
            | ExecutorSource::Http(_)
            | ExecutorSource::Grpc(_)
            | ExecutorSource::Content => None,
        })
    }

    /// Returns the HTTP service of that name.
    pub(crate) fn http(&self, name: &str) -> Result<Arc<HttpSource>, Error> {
        match self.open.get(name).map(|open| &open.source) {
            Some(ExecutorSource::Http(service)) => Ok(Arc::clone(service)),
            _ => Err(Error::NoSource(name.to_owned())),
        }
    }

    /// Returns the gRPC server of that name.
    pub(crate) fn grpc(&self, name: &str) -> Result<Arc<GrpcServer>, Error> {
        match self.open.get(name).map(|open| &open.source) {
            Some(ExecutorSource::Grpc(server)) => Ok(Arc::clone(server)),
            _ => Err(Error::NoSource(name.to_owned())),
        }
    }
}

impl ExecutorSource {
    fn open(settings: &SourceSettings, limit: Duration, ambient: &Ambient) -> Result<Self, Error> {
        match &settings.kind {
            SourceKind::Sql(settings) => Database::new(settings, limit)
                .map(|database| Self::Sql(Arc::new(database)))
                .map_err(Error::Source),
            SourceKind::Http(settings) => HttpSource::open(settings, ambient)
                .map(|service| Self::Http(Arc::new(service)))
                .map_err(|error| Error::HttpSource(error.to_string())),
            SourceKind::Grpc(settings) => GrpcServer::open(settings, ambient)
                .map(|server| Self::Grpc(Arc::new(server)))
                .map_err(|error| Error::GrpcSource(error.to_string())),
            SourceKind::Content(_) => Ok(Self::Content),
            SourceKind::Mcp(mcp) => Upstream::new(&settings.name, &mcp.transport, ambient)
                .map(|upstream| Self::Mcp(Arc::new(upstream)))
                .map_err(|error| Error::HttpSource(error.to_string())),
        }
    }
}
