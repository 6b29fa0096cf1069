//! Makes the requests that ghz sends to each service (`deploy/load`): what the gateway would send for one tool.
//!
//! ```text
//!  tool-runner ListTools ─▶ facts of the tool ─▶ policy Authorize ─▶ permit ─▶ requests as JSON, one file a method
//! ```
//!
//! Permits are the policy's own, so the files serve as long as `policy.permit_ttl` says.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prost_reflect::{DescriptorPool, DynamicMessage};
use wardgate_domain::{Ambient, CallId, Digest};
use wardgate_proto::audit::v1 as audit;
use wardgate_proto::common::v1::Caller;
use wardgate_proto::memory::v1 as memory;
use wardgate_proto::policy::v1 as policy;
use wardgate_proto::policy::v1::policy_service_client::PolicyServiceClient;
use wardgate_proto::toolrunner::v1 as runner;
use wardgate_proto::toolrunner::v1::tool_runner_service_client::ToolRunnerServiceClient;
use wardgate_rpc::link::{self, TlsFiles};
use wardgate_rpc::{Link, Peer};

type Failure = Box<dyn Error + Send + Sync>;

const USAGE: &str =
    "load_data POLICY_URL TOOL_RUNNER_URL CERTIFICATES SUBJECT ROLE TOOL ARGUMENTS OUT";

/// Callers whose rights the policy is asked for in turn: more than it would see anew if it were one.
const CALLERS: usize = 1_000;
/// Conversations that are written to and read in turn.
const CONVERSATIONS: usize = 100;
/// ghz puts a new UUID in its place in each request.
const NEW_ID: &str = "{{newUUID}}";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [
        policy,
        runner,
        certificates,
        subject,
        role,
        tool,
        arguments,
        out,
    ] = words.as_slice()
    else {
        return Err(USAGE.into());
    };
    let certificates = Path::new(certificates);
    let tls = TlsFiles {
        ca: certificates.join("ca.pem"),
        cert: certificates.join("gateway.pem"),
        key: certificates.join("gateway.key"),
    };
    let policy = connect(
        policy,
        Peer::Policy,
        "wardgate.policy.v1.PolicyService",
        &tls,
    )?;
    let name = "wardgate.toolrunner.v1.ToolRunnerService";
    let runner = connect(runner, Peer::ToolRunner, name, &tls)?;
    let requests = requests(policy, runner, caller(subject, role), tool, arguments).await?;
    let out = PathBuf::from(out);
    fs::create_dir_all(&out)?;
    for (file, lines) in requests {
        fs::write(out.join(file), format!("[{}]", lines.join(",\n")))?;
    }
    Ok(())
}

fn connect(url: &str, peer: Peer, name: &'static str, tls: &TlsFiles) -> Result<Link, Failure> {
    Ok(link::connect(url, peer, name, Some(tls))?.link)
}

/// As the gateway makes it of a token that is good for an hour.
fn caller(subject: &str, role: &str) -> Caller {
    let now = Ambient::system().now();
    Caller {
        issuer: "https://issuer.wardgate.internal".to_owned(),
        subject: subject.to_owned(),
        roles: vec![role.to_owned()],
        token_id: "load".to_owned(),
        expires_at: Some(now.plus(Duration::from_hours(1)).into()),
        ..Caller::default()
    }
}

async fn requests(
    policy: Link,
    runner: Link,
    caller: Caller,
    tool: &str,
    arguments: &str,
) -> Result<[(&'static str, Vec<String>); 5], Failure> {
    let mut runner = ToolRunnerServiceClient::new(runner);
    let listed = runner.list_tools(runner::ListToolsRequest {}).await?;
    let tools = listed.into_inner().tools.into_iter();
    let facts = tools.filter_map(|tool| tool.facts);
    let facts = facts.filter(|facts| facts.name == tool).next();
    let facts = facts.ok_or_else(|| format!("no tool is called {tool}"))?;
    let question = policy::AuthorizeRequest {
        caller: Some(caller.clone()),
        tool: Some(facts.clone()),
        arguments_json: arguments.to_owned().into(),
        client_ip: "192.0.2.1".to_owned(),
    };
    let answer = PolicyServiceClient::new(policy)
        .authorize(question.clone())
        .await?;
    let decision = answer.into_inner().decision.unwrap_or_default();
    let permit = decision
        .permit
        .ok_or_else(|| format!("the policy does not permit {tool} to {}", caller.subject))?;

    let questions = (0..CALLERS).map(|at| {
        let subject = format!("{}-{at}", caller.subject);
        let caller = Some(Caller {
            subject,
            ..caller.clone()
        });
        policy::AuthorizeRequest {
            caller,
            ..question.clone()
        }
    });
    let call = runner::CallToolRequest {
        call_id: NEW_ID.to_owned(),
        caller: Some(caller.clone()),
        tool: tool.to_owned(),
        arguments_json: arguments.to_owned().into(),
        permit: Some(permit),
        ..runner::CallToolRequest::default()
    };
    prove(&mut runner, call.clone()).await?;
    let outcome = audit::Outcome {
        call: Some(audit::CallFacts {
            call_id: NEW_ID.to_owned(),
            issuer: caller.issuer.clone(),
            subject: caller.subject.clone(),
            roles: caller.roles.clone(),
            token_id: caller.token_id.clone(),
            client_ip: question.client_ip.clone(),
            protocol: "2026-07-28".to_owned(),
            requested_tool: tool.to_owned(),
            tool: tool.to_owned(),
            definition_digest: facts.definition_digest,
            arguments_digest: Digest::of(arguments.as_bytes()).to_wire(),
            decision_id: decision.decision_id,
            policy_hash: decision.policy_hash,
            policies: decision.policies,
            ..audit::CallFacts::default()
        }),
        status: audit::Status::Ok.into(),
        rows: 2,
        duration: Some(prost_types::Duration::default()),
        result_digest: Digest::of(b"result").to_wire(),
        ..audit::Outcome::default()
    };
    let append = audit::AppendRequest {
        record: Some(audit::Record {
            time: Some(Ambient::system().now().into()),
            event: Some(audit::record::Event::Outcome(outcome)),
        }),
        retry: false,
    };
    let conversations = || (0..CONVERSATIONS).map(|at| format!("load-{at}"));
    let additions = conversations().map(|conversation_id| memory::AddMessagesRequest {
        caller: Some(caller.clone()),
        conversation_id,
        messages: vec![memory::Message {
            role: memory::Role::User.into(),
            source: memory::Source::Person.into(),
            content: "How are the patients of today's round?".to_owned(),
            ..memory::Message::default()
        }],
        ..memory::AddMessagesRequest::default()
    });
    let contexts = conversations().map(|conversation_id| memory::GetContextRequest {
        caller: Some(caller.clone()),
        conversation_id,
        ..memory::GetContextRequest::default()
    });
    let json = Json(DescriptorPool::decode(wardgate_proto::DESCRIPTORS)?);
    let question = "wardgate.policy.v1.AuthorizeRequest";
    let call_name = "wardgate.toolrunner.v1.CallToolRequest";
    Ok([
        ("authorize.json", json.all(question, questions)?),
        ("call_tool.json", json.all(call_name, [call])?),
        (
            "append.json",
            json.all("wardgate.audit.v1.AppendRequest", [append])?,
        ),
        (
            "add_messages.json",
            json.all("wardgate.memory.v1.AddMessagesRequest", additions)?,
        ),
        (
            "get_context.json",
            json.all("wardgate.memory.v1.GetContextRequest", contexts)?,
        ),
    ])
}

/// A tool that fails is an answer like any other to ghz, and must not be measured as one that works.
async fn prove(
    runner: &mut ToolRunnerServiceClient<Link>,
    call: runner::CallToolRequest,
) -> Result<(), Failure> {
    let call_id = CallId::new(&Ambient::system()).to_string();
    let call = runner::CallToolRequest { call_id, ..call };
    let mut events = runner.call_tool(call).await?.into_inner();
    while let Some(event) = events.message().await? {
        if let Some(runner::call_tool_response::Event::Result(result)) = event.event {
            return match result.is_error {
                false => Ok(()),
                true => Err("the tool fails; see the log of the tool-runner".into()),
            };
        }
    }
    Err("the tool gives no result".into())
}

/// Messages in the JSON of protobuf.
struct Json(DescriptorPool);

impl Json {
    fn all<M: prost::Message>(
        &self,
        name: &str,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<String>, Failure> {
        let descriptor = self.0.get_message_by_name(name);
        let descriptor = descriptor.ok_or_else(|| format!("there is no message {name}"))?;
        let line = |message: M| {
            let mut dynamic = DynamicMessage::new(descriptor.clone());
            dynamic.transcode_from(&message)?;
            Ok(serde_json::to_string(&dynamic)?)
        };
        messages.into_iter().map(line).collect()
    }
}
