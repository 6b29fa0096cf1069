//! The requests to an upstream server.

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

/// Maximum number of additional processes of a legacy server, for clients that can be asked for input.
const MAX_PROCESSES: usize = 4;

/// Maximum number of additional sessions with a legacy server, for clients that can be asked for input.
const MAX_SESSIONS: usize = 16;

/// An upstream server. The first request connects to it, and dropping it disconnects.
pub struct Upstream {
    transport: Transport,
    link: Arc<Link>,
    /// The personal connections, if the credentials stand for the caller.
    personal: Option<PersonalConnections<Self>>,
    /// Additional connections on which the server may ask clients for input.
    profile_links: Arc<ProfileLinks>,
    ttls: ListTtls,
    conditional_tools: ConditionalTools,
    /// Whether a program that declares no legacy version refused `initialize`.
    refuses_initialize: CachedObservation,
}

impl Upstream {
    /// Creates an upstream without connecting. `name` is the name of the source, for the log.
    pub fn new(name: &str, transport: &Transport, ambient: &Ambient) -> Result<Self, EgressError> {
        let events = Arc::new(Events::new(name.to_owned(), ambient.clone()));
        let personal = PersonalConnections::for_transport(transport, &events, Self::of_person)?;
        let shared = personal.as_ref().map(PersonalConnections::shared_transport);
        let mut upstream = Self::open(shared.as_ref().unwrap_or(transport), events)?;
        upstream.personal = personal;
        Ok(upstream)
    }

    /// Creates the upstream for one person, whose credentials are in `transport`.
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

    /// Returns the upstream with the connection of this caller. `token` is the caller's token, from which the
    /// credentials may be derived.
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

    /// Returns the health of the server.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.link.events.health()
    }

    /// Returns the observed properties of the server.
    pub fn observed_server(&self) -> watch::Receiver<ObservedServer> {
        self.link.events.observed_server()
    }

    /// Returns a counter of the actual and possible changes of the server's tools.
    pub fn tools_changed(&self) -> watch::Receiver<u64> {
        self.link.events.tools_changes()
    }

    /// Returns a counter of the changes of the server's prompts.
    pub fn prompts_changed(&self) -> watch::Receiver<u64> {
        self.link.events.prompts_changes()
    }

    /// Returns a counter of the changes of the server's resources and resource templates.
    pub fn resources_changed(&self) -> watch::Receiver<u64> {
        self.link.events.resources_changes()
    }

    /// Returns the instructions of the server, or `None` before the first connection or if it has none.
    pub fn instructions(&self) -> Option<Arc<str>> {
        self.link.events.instructions()
    }

    /// Returns the TTL of the server's lists of that kind, or `None` if the server does not specify it.
    pub fn ttl(&self, kind: OfferKind) -> Option<Duration> {
        self.ttls.find_shortest(kind)
    }

    /// Listens to changes of these resources from now on. The server may refuse any of them. If the credentials stand for the
    /// caller, this upstream listens to none, because it would report changes of resources that the caller may not read; use the
    /// caller's upstream from [`Self::for_caller`].
    pub fn listen(&self, uris: BTreeSet<String>) -> ResourceListener {
        let uris = match self.personal {
            Some(_) => BTreeSet::new(),
            None => uris,
        };
        self.link.events.subscriptions.listen(uris)
    }

    /// Connects if there is no connection. A failure is reported to the next request.
    pub async fn connect(&self) {
        let _ = self.link.connection().await;
    }

    /// Returns the server's tools, without those that cannot be offered.
    pub async fn list_tools(
        &self,
        deadline: Instant,
    ) -> Result<Vec<ToolDefinition>, UpstreamError> {
        let (tools, ttl) = self.link.list_tools(deadline).await?;
        self.ttls.set("tools/list", ttl);
        Ok(tools)
    }

    /// Returns the server's tools including those that are only shown to clients with certain capabilities,
    /// each with these capabilities.
    pub async fn offered_tools(
        &self,
        deadline: Instant,
    ) -> Result<Vec<ToolDefinition>, UpstreamError> {
        let mut tools = self.list_tools(deadline).await?;
        let conditional = self
            .conditional_tools
            .resolve_tools(&tools, &self.transport, &self.link, deadline)
            .await;
        for found in conditional.iter() {
            match tools.iter_mut().find(|tool| tool.name == found.name) {
                Some(tool) => tool.required.clone_from(&found.required),
                None => tools.push(found.clone()),
            }
        }
        Ok(tools)
    }

    /// Calls a tool without a client that the server could ask for input. The arguments are sent byte for byte.
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

    /// Performs one round of a request whose client can take part. Dropping the future cancels the request at the server.
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
            // A legacy server has no state, so it cannot have sent any.
            return Err(UpstreamError::BadResult(
                "it no longer has the suspended request",
            ));
        }
        let is_legacy = !is_modern || client.is_legacy && !goes_on;
        if is_legacy && let Some(link) = self.legacy_link(profile, deadline).await? {
            let client = Arc::clone(client);
            // Tasks of the two eras differ, and another session may offer other tools.
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

    /// Sends a request about the task `id`. Returns the status of the task if it was requested.
    pub async fn request_task(
        &self,
        id: &str,
        step: &ServerTaskRequest,
        client: &Participation,
        deadline: Instant,
    ) -> Result<Option<(ServerTask, TaskStatus)>, UpstreamError> {
        let connection = self.link.connection_by(deadline).await?;
        if connection.era() != Era::Modern {
            return Err(UpstreamError::BadResult("it no longer supports tasks"));
        }
        let answer = self
            .request(&step.request(id, client), deadline, None)
            .await?;
        match step {
            ServerTaskRequest::Get => ServerTask::looked_at(&answer, id, client).map(Some),
            ServerTaskRequest::Update(_) | ServerTaskRequest::Cancel => Ok(None),
        }
    }

    /// Returns the link on which the features of `profile` were declared by `initialize`, or `None` if the server does not accept
    /// `initialize` or there is no room.
    async fn legacy_link(
        &self,
        profile: ClientProfile,
        deadline: Instant,
    ) -> Result<Option<Arc<Link>>, UpstreamError> {
        let eras = self.link.settle_eras().await;
        // A program that declares no legacy version is tried once, by making the connection.
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

    /// Returns the link on which the features of `profile` are declared to a legacy server. Returns `None` if there are none, or
    /// no room for another connection; the server may not ask for input then.
    fn link_for(&self, profile: ClientProfile) -> Result<Option<Arc<Link>>, UpstreamError> {
        if profile.is_empty() {
            return Ok(None);
        }
        let open = || Link::new(&self.transport, Arc::clone(&self.link.events), profile);
        let link = self.profile_links.link(profile, open);
        link.map_err(|error| UpstreamError::Unreachable(error.to_string()))
    }

    /// Sends a request, with the headers that mirror arguments if the server needs them.
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
            // The schema of the tool has changed in the meantime, and the server did nothing.
            Err(UpstreamError::Rpc(error)) if error.code == HEADER_MISMATCH => {
                let connection = self.link.connection_by(deadline).await?;
                connection.listing().forget();
                request.headers = self.mirrored_headers(name, arguments, deadline).await?;
                self.link.request(&request, deadline, listener).await
            }
            outcome => outcome,
        }
    }

    /// Returns the server's resources, each as the server defines it.
    pub async fn list_resources(
        &self,
        deadline: Instant,
    ) -> Result<Vec<Box<RawValue>>, UpstreamError> {
        self.list("resources/list", "resources", deadline).await
    }

    /// Returns the templates of the server's resource URIs.
    pub async fn list_resource_templates(
        &self,
        deadline: Instant,
    ) -> Result<Vec<Box<RawValue>>, UpstreamError> {
        let list = "resourceTemplates";
        self.list("resources/templates/list", list, deadline).await
    }

    /// Returns the skills capability and the server's skills, each as the server defines it, or `None` if it
    /// does not support the extension.
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

    /// Sends a request without a client that the server could ask for input.
    pub async fn request_without_client(
        &self,
        operation: &UpstreamOperation,
        deadline: Instant,
    ) -> Result<Box<RawValue>, UpstreamError> {
        self.request(&operation.request(), deadline, None).await
    }

    /// Reads a resource: `{"contents": […]}`.
    pub async fn read_resource(
        &self,
        uri: &str,
        deadline: Instant,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let request = UpstreamRequest::new("resources/read", vec![("uri", MemberValue::Text(uri))]);
        self.request(&request, deadline, None).await
    }

    /// Returns the server's prompts, each as the server defines it.
    pub async fn list_prompts(
        &self,
        deadline: Instant,
    ) -> Result<Vec<Box<RawValue>>, UpstreamError> {
        self.list("prompts/list", "prompts", deadline).await
    }

    /// Returns a prompt filled in with `arguments`: `{"messages": […]}`.
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

    /// Returns whether the server is at a URL.
    pub fn is_over_http(&self) -> bool {
        matches!(self.transport, Transport::Http(_))
    }

    /// Acts as if the server had announced a change of its tools.
    #[cfg(test)]
    pub(crate) fn announce_changed_tools(&self) {
        self.link.events.tools_changed();
    }

    /// Returns completions of an argument: `{"completion": {…}}`. `reference` and `argument` are the MCP parameters, and `known`
    /// contains the arguments that are known already, as a JSON object.
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

    /// Closes the connections, and waits for their end. A program gets a few seconds.
    pub async fn close(&self) {
        let persons = self
            .personal
            .iter()
            .flat_map(PersonalConnections::open_ones);
        let persons = persons.map(|upstream| async move { Box::pin(upstream.close()).await });
        let profiles = self.profile_links.take_links();
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

    /// Returns all entries of a list, from all pages.
    async fn list(
        &self,
        method: &'static str,
        member: &'static str,
        deadline: Instant,
    ) -> Result<Vec<Box<RawValue>>, UpstreamError> {
        let mut pages = Pages::new(method, member);
        loop {
            let page = self.request(&pages.request(), deadline, None).await?;
            if pages.add_page(&page)? {
                self.ttls.set(method, pages.ttl);
                return Ok(pages.entries);
            }
        }
    }

    /// Returns the headers that mirror `arguments`, or none if the server does not need them.
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

/// Returns whether `operation` is a call of a tool that only runs as a task, on a server whose tasks can be followed over `link`.
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
        for link in self.profile_links.take_links() {
            link.disconnect();
        }
    }
}
