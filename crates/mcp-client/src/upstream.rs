//! What can be asked of an upstream server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use wardgate_domain::{Ambient, Caller, OfferKind};
use wardgate_egress::EgressError;
use wardgate_mcp::error_code::HEADER_MISMATCH;
use wardgate_mcp::{Era, mirrored_header};

use super::conditional_tools::ConditionalTools;
use super::definition::{Pages, ToolDefinition};
use super::era::{CachedObservation, ObservedServer, SkillsCapability, SupportedEras};
use super::error::UpstreamError;
use super::events::{Events, Health};
use super::link::Link;
use super::list_ttls::ListTtls;
use super::message::{MemberValue, UpstreamRequest};
use super::participation::{ClientProfile, Participation};
use super::personal_connections::PersonalConnections;
use super::profiles::ProfileLinks;
use super::result::check_complete;
use super::round::OpenExchange;
use super::round::{self, Round, RoundStart, UpstreamOperation};
use super::server_message::{Listener, ServerMessage, lend};
use super::server_task::{ServerTask, ServerTaskRequest, TaskStatus};
use super::settings::Transport;
use super::subscriptions::ResourceListener;

/// How many further processes of one legacy server there may be, for clients that can be asked for input.
const MAX_PROCESSES: usize = 4;

/// How many further sessions with one legacy server there may be, for clients that can be asked for input.
const MAX_SESSIONS: usize = 16;

/// An upstream server. The first request connects to it; dropping it disconnects.
pub struct Upstream {
    transport: Transport,
    link: Arc<Link>,
    /// Where the credentials stand for the caller.
    personal: Option<PersonalConnections<Self>>,
    /// Further connections, where the server may ask clients something.
    profile_links: Arc<ProfileLinks>,
    ttls: ListTtls,
    conditional_tools: ConditionalTools,
    /// Of a program that names no legacy version: it does not take `initialize`.
    refuses_initialize: CachedObservation,
}

impl Upstream {
    /// `name` is the source's, for the log. Connects to nothing yet.
    pub fn new(name: &str, transport: &Transport, ambient: &Ambient) -> Result<Self, EgressError> {
        let events = Arc::new(Events::new(name.to_owned(), ambient.clone()));
        let personal = PersonalConnections::of(transport, &events, Self::of_person)?;
        let shared = personal.as_ref().map(PersonalConnections::shared);
        let mut upstream = Self::open(shared.as_ref().unwrap_or(transport), events)?;
        upstream.personal = personal;
        Ok(upstream)
    }

    /// The same for one person, whose credentials `transport` has.
    fn of_person(transport: &Transport, events: Events) -> Result<Self, EgressError> {
        Self::open(transport, Arc::new(events))
    }

    fn open(transport: &Transport, events: Arc<Events>) -> Result<Self, EgressError> {
        Ok(Self {
            transport: transport.clone(),
            link: Arc::new(Link::new(transport, events, ClientProfile::default())?),
            personal: None,
            profile_links: Arc::new(ProfileLinks::new(match transport {
                Transport::Stdio(_) => MAX_PROCESSES,
                Transport::Http(_) => MAX_SESSIONS,
            })),
            ttls: ListTtls::default(),
            conditional_tools: ConditionalTools::default(),
            refuses_initialize: CachedObservation::default(),
        })
    }

    /// The server as this caller connects to it. `token` is what the caller called with, where credentials are made of it.
    pub fn for_caller(
        self: &Arc<Self>,
        caller: &Caller,
        token: Option<&str>,
    ) -> Result<Arc<Self>, UpstreamError> {
        match &self.personal {
            Some(personal) => personal.upstream(caller, token),
            None => Ok(Arc::clone(self)),
        }
    }

    /// Whether the server can be reached.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.link.events.health()
    }

    /// What the server has shown of itself.
    pub fn observed(&self) -> watch::Receiver<ObservedServer> {
        self.link.events.observed()
    }

    /// Changes when the server's tools changed, or may have.
    pub fn tools_changed(&self) -> watch::Receiver<u64> {
        self.link.events.tools_changes()
    }

    /// Changes when the server's prompts changed.
    pub fn prompts_changed(&self) -> watch::Receiver<u64> {
        self.link.events.prompts_changes()
    }

    /// Changes when the server's resources or their templates changed.
    pub fn resources_changed(&self) -> watch::Receiver<u64> {
        self.link.events.resources_changes()
    }

    /// What the server says of itself; none before it was connected to.
    pub fn instructions(&self) -> Option<Arc<str>> {
        self.link.events.instructions()
    }

    /// How long its lists of that kind may be kept; none where it does not say.
    pub fn ttl(&self, kind: OfferKind) -> Option<Duration> {
        self.ttls.of(kind)
    }

    /// Hears from now on when these resources change. The server may refuse any of them. Where the credentials stand for
    /// the caller, the caller's own (see [`Self::for_caller`]) is asked, and this one for none: it would tell of what those
    /// that list may read, which the caller may not.
    pub fn listen(&self, uris: BTreeSet<String>) -> ResourceListener {
        let uris = match self.personal {
            Some(_) => BTreeSet::new(),
            None => uris,
        };
        self.link.events.subscriptions.listen(uris)
    }

    /// Connects, unless it is connected. A failure is reported to the next request.
    pub async fn connect(&self) {
        let _ = self.link.connection().await;
    }

    /// The server's tools, without those that cannot be offered.
    pub async fn list_tools(
        &self,
        deadline: Instant,
    ) -> Result<Vec<ToolDefinition>, UpstreamError> {
        let (tools, ttl) = self.link.list_tools(deadline).await?;
        self.ttls.set("tools/list", ttl);
        Ok(tools)
    }

    /// The same with those that an older server shows only to clients with certain capabilities; each says which it needs.
    pub async fn offered_tools(
        &self,
        deadline: Instant,
    ) -> Result<Vec<ToolDefinition>, UpstreamError> {
        let mut tools = self.list_tools(deadline).await?;
        let server = (&self.transport, &self.link);
        let conditional = self.conditional_tools.of(&tools, server, deadline).await;
        for found in conditional.iter() {
            match tools.iter_mut().find(|tool| tool.name == found.name) {
                Some(tool) => tool.required.clone_from(&found.required),
                None => tools.push(found.clone()),
            }
        }
        Ok(tools)
    }

    /// Calls a tool without a client that the server could ask for input. Its arguments reach it byte for byte.
    pub async fn call_tool(
        &self,
        operation: &UpstreamOperation,
        deadline: Instant,
        mut listener: Option<Listener<'_>>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let request = operation.request().offering_tasks(false);
        let is_task = runs_as_task(&self.link, operation, deadline).await?;
        let request = request.task_if(is_task);
        let result = self
            .request_with_mirrored_headers(operation, request, deadline, lend(&mut listener))
            .await?;
        check_complete(&result)?;
        Ok(result)
    }

    /// One round of a request whose client can take part. Dropping the future cancels it at the server.
    pub async fn round(
        &self,
        operation: &UpstreamOperation,
        client: &Arc<Participation>,
        start: RoundStart,
        deadline: Instant,
        listener: Listener<'_>,
    ) -> Result<Round, UpstreamError> {
        let mut wants = |message: ServerMessage| match &message {
            ServerMessage::Log(log) if client.log_level.is_none_or(|from| log.level < from) => {
                false
            }
            _ => listener(message),
        };
        let goes_on = matches!(start, RoundStart::Retry { .. });
        let answers = match start {
            RoundStart::Open {
                exchange,
                responses,
            } => return exchange.round(Some(&responses), deadline, &mut wants).await,
            RoundStart::Retry { state, responses } => Some((state, responses)),
            RoundStart::Answered(responses) => Some((None, responses)),
            RoundStart::Beginning => None,
        };
        let connection = self.link.connection_by(deadline).await?;
        let profile = client.capabilities.profile;
        let is_modern = connection.era() == Era::Modern;
        if !is_modern && goes_on {
            // It has no state of its own, so it cannot have given us any.
            return Err(UpstreamError::BadResult("it forgot what it waited for"));
        }
        let is_legacy = !is_modern || client.is_legacy && !goes_on;
        if is_legacy && let Some(link) = self.legacy_link(profile, deadline).await? {
            let client = Arc::clone(client);
            // The tasks of one era are not those of the other, and another session may show other tools.
            let is_task = !is_modern && runs_as_task(&link, operation, deadline).await?;
            let begun = OpenExchange::begin(link, operation.clone(), is_task, client);
            return begun.round(None, deadline, &mut wants).await;
        }
        let is_task = runs_as_task(&self.link, operation, deadline).await?;
        let mut request = operation.request().with(client).task_if(is_task);
        if let Some((state, responses)) = answers.as_ref().filter(|_| is_modern) {
            responses.add_to(&mut request, state.as_deref());
        }
        let may_be_task = request.offers_tasks && is_modern;
        let wants: Listener<'_> = &mut wants;
        let outcome = self
            .request_with_mirrored_headers(operation, request, deadline, Some(wants))
            .await;
        round::end(outcome, client, may_be_task)
    }

    /// Makes a request about the task `id`; gives its status, where that was requested.
    pub async fn request_task(
        &self,
        id: &str,
        step: &ServerTaskRequest,
        client: &Participation,
        deadline: Instant,
    ) -> Result<Option<(ServerTask, TaskStatus)>, UpstreamError> {
        let connection = self.link.connection_by(deadline).await?;
        if connection.era() != Era::Modern {
            return Err(UpstreamError::BadResult("it has no tasks any more"));
        }
        let answer = self
            .request(&step.request(id, client), deadline, None)
            .await?;
        match step {
            ServerTaskRequest::Get => ServerTask::looked_at(&answer, id, client).map(Some),
            ServerTaskRequest::Update(_) | ServerTaskRequest::Cancel => Ok(None),
        }
    }

    /// Where the server takes `initialize`, and knows by it that it may ask so much; none where it does not take it.
    async fn legacy_link(
        &self,
        profile: ClientProfile,
        deadline: Instant,
    ) -> Result<Option<Arc<Link>>, UpstreamError> {
        let eras = self.link.settle_eras().await;
        // A program that names no legacy version is asked once, by the connection itself.
        let is_open = eras == SupportedEras::Modern && !self.is_over_http();
        let is_refused = !is_open || self.refuses_initialize.holds();
        if eras == SupportedEras::Modern && is_refused {
            return Ok(None);
        }
        let Some(link) = self.link_for(profile)? else {
            return Ok(None);
        };
        if is_open && link.connection_by(deadline).await.is_err() {
            self.refuses_initialize.set(true);
            return Ok(None);
        }
        Ok(Some(link))
    }

    /// Where a legacy server knows that it may ask so much. Without room for that it is not told, and asks nothing.
    fn link_for(&self, profile: ClientProfile) -> Result<Option<Arc<Link>>, UpstreamError> {
        if profile.is_empty() {
            return Ok(None);
        }
        let open = || Link::new(&self.transport, Arc::clone(&self.link.events), profile);
        let link = self.profile_links.link(profile, open);
        link.map_err(|error| UpstreamError::Unreachable(error.to_string()))
    }

    /// Makes a request, with the headers that mirror arguments where the server needs them.
    async fn request_with_mirrored_headers(
        &self,
        operation: &UpstreamOperation,
        mut request: UpstreamRequest<'_>,
        deadline: Instant,
        mut listener: Option<Listener<'_>>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let UpstreamOperation::Tool {
            name, arguments, ..
        } = operation
        else {
            return self.link.request(&request, deadline, listener).await;
        };
        request.headers = self.mirrored_headers(name, arguments, deadline).await?;
        let outcome = self
            .link
            .request(&request, deadline, lend(&mut listener))
            .await;
        match outcome {
            // The tool's schema is another by now; the server did nothing.
            Err(UpstreamError::Rpc(error)) if error.code == HEADER_MISMATCH => {
                let connection = self.link.connection_by(deadline).await?;
                connection.listing().forget();
                request.headers = self.mirrored_headers(name, arguments, deadline).await?;
                self.link.request(&request, deadline, listener).await
            }
            outcome => outcome,
        }
    }

    /// The server's resources, each as it defines it.
    pub async fn list_resources(
        &self,
        deadline: Instant,
    ) -> Result<Vec<Box<RawValue>>, UpstreamError> {
        self.list("resources/list", "resources", deadline).await
    }

    /// The templates of its resources' URIs.
    pub async fn list_resource_templates(
        &self,
        deadline: Instant,
    ) -> Result<Vec<Box<RawValue>>, UpstreamError> {
        let list = "resourceTemplates";
        self.list("resources/templates/list", list, deadline).await
    }

    /// The server's skills, each as it defines it, and what it says of them; none where it has no such extension.
    pub async fn list_skills(
        &self,
        deadline: Instant,
    ) -> Result<Option<(SkillsCapability, Vec<Box<RawValue>>)>, UpstreamError> {
        let Some(skills) = self.link.connection_by(deadline).await?.skills() else {
            return Ok(None);
        };
        let listed = self.list("skills/list", "skills", deadline).await?;
        Ok(Some((skills, listed)))
    }

    /// Makes a request without a client that the server could ask for input.
    pub async fn request_without_client(
        &self,
        operation: &UpstreamOperation,
        deadline: Instant,
    ) -> Result<Box<RawValue>, UpstreamError> {
        self.request(&operation.request(), deadline, None).await
    }

    /// A resource: `{"contents": […]}`.
    pub async fn read_resource(
        &self,
        uri: &str,
        deadline: Instant,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let request = UpstreamRequest::new("resources/read", vec![("uri", MemberValue::Text(uri))]);
        self.request(&request, deadline, None).await
    }

    /// The server's prompts, each as it defines it.
    pub async fn list_prompts(
        &self,
        deadline: Instant,
    ) -> Result<Vec<Box<RawValue>>, UpstreamError> {
        self.list("prompts/list", "prompts", deadline).await
    }

    /// A prompt filled in: `{"messages": […]}`.
    pub async fn get_prompt(
        &self,
        name: &str,
        arguments: &RawValue,
        deadline: Instant,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let members = vec![
            ("name", MemberValue::Text(name)),
            ("arguments", MemberValue::Raw(arguments)),
        ];
        self.request(
            &UpstreamRequest::new("prompts/get", members),
            deadline,
            None,
        )
        .await
    }

    /// Whether it is behind a URL.
    pub fn is_over_http(&self) -> bool {
        matches!(self.transport, Transport::Http(_))
    }

    /// The server announced a change of its tools.
    #[cfg(test)]
    pub(crate) fn announce_changed_tools(&self) {
        self.link.events.tools_changed();
    }

    /// How an argument may go on: `{"completion": {…}}`. `reference` and `argument` are what MCP calls so, `known` the
    /// arguments that are known already, one JSON object.
    pub async fn complete(
        &self,
        reference: Value,
        argument: Value,
        known: Option<Value>,
        deadline: Instant,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let mut members = vec![
            ("ref", MemberValue::Json(reference)),
            ("argument", MemberValue::Json(argument)),
        ];
        if let Some(known) = known {
            members.push(("context", MemberValue::Json(json!({ "arguments": known }))));
        }
        self.request(
            &UpstreamRequest::new("completion/complete", members),
            deadline,
            None,
        )
        .await
    }

    /// Ends the connection, and waits for its end: a program is given a few seconds.
    pub async fn close(&self) {
        let persons = self
            .personal
            .iter()
            .flat_map(PersonalConnections::open_ones);
        let persons = persons.map(|upstream| async move { Box::pin(upstream.close()).await });
        let profiles = self.profile_links.take();
        let closing = profiles.iter().map(|link| link.close());
        let persons = futures::future::join_all(persons);
        futures::join!(
            persons,
            self.link.close(),
            futures::future::join_all(closing)
        );
    }

    async fn request(
        &self,
        request: &UpstreamRequest<'_>,
        deadline: Instant,
        listener: Option<Listener<'_>>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let result = self.link.request(request, deadline, listener).await?;
        check_complete(&result)?;
        Ok(result)
    }

    /// All pages of a list.
    async fn list(
        &self,
        method: &'static str,
        member: &'static str,
        deadline: Instant,
    ) -> Result<Vec<Box<RawValue>>, UpstreamError> {
        let mut pages = Pages::new(method, member);
        loop {
            let page = self.request(&pages.request(), deadline, None).await?;
            if pages.take(&page)? {
                self.ttls.set(method, pages.ttl);
                return Ok(pages.entries);
            }
        }
    }

    /// The headers that mirror `arguments`, where the server needs them.
    async fn mirrored_headers(
        &self,
        tool: &str,
        arguments: &RawValue,
        deadline: Instant,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, UpstreamError> {
        let connection = self.link.connection_by(deadline).await?;
        if !connection.repeats_arguments() {
            return Ok(Vec::new());
        }
        let tools = self.link.known_tools(&connection, deadline).await?;
        let headers = tools
            .tool(tool)
            .map(|tool| mirrored_header::of_arguments(&tool.headers, arguments));
        Ok(headers.unwrap_or_default())
    }
}

/// Whether it is a call of a tool that runs as a task only, on a server whose tasks can be followed over `link`.
async fn runs_as_task(
    link: &Arc<Link>,
    operation: &UpstreamOperation,
    deadline: Instant,
) -> Result<bool, UpstreamError> {
    let UpstreamOperation::Tool { name, .. } = operation else {
        return Ok(false);
    };
    let connection = link.connection_by(deadline).await?;
    if !connection.has_tasks() {
        return Ok(false);
    }
    let tools = link.known_tools(&connection, deadline).await?;
    Ok(tools.tool(name).is_some_and(|tool| tool.is_task))
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.link.disconnect();
        for link in self.profile_links.take() {
            link.disconnect();
        }
    }
}
