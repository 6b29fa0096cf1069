//! Creates the requests that ghz sends to each service (`deploy/load`), as the gateway would send them for one tool.
//!
//! ```text
//!  tool-runner ListTools ─▶ facts ─▶ policy Authorize ─▶ permit ─▶ one call as a check ─▶ requests as JSON
//! ```
//!
//! The permits are issued by the policy service, so the files are valid for the time in `policy.permit_ttl`.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde::Deserialize;
use wardgate_domain::{Ambient, CallId, Digest, Timestamp};
use wardgate_proto::audit::v1 as audit;
use wardgate_proto::common::v1::Caller;
use wardgate_proto::memory::v1 as memory;
use wardgate_proto::memory::v1::memory_service_client::MemoryServiceClient;
use wardgate_proto::policy::v1 as policy;
use wardgate_proto::policy::v1::policy_service_client::PolicyServiceClient;
use wardgate_proto::toolrunner::v1 as runner;
use wardgate_proto::toolrunner::v1::tool_runner_service_client::ToolRunnerServiceClient;
use wardgate_rpc::link::{self, TlsFiles};
use wardgate_rpc::{Link, Peer};

type Failure = Box<dyn Error + Send + Sync>;

const USAGE: &str =
    "load_data POLICY_URL TOOL_RUNNER_URL MEMORY_URL CERTIFICATES TOKENS_FILE TOOL ARGUMENTS OUT";

/// Number of conversations that are written to and read in turn.
const CONVERSATIONS: usize = 100;
/// A placeholder that ghz replaces by a new UUID in each request.
const NEW_ID: &str = "{{newUUID}}";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [
        policy,
        runner,
        memory,
        certificates,
        tokens,
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
    let link = |url: &str, peer, name| {
        link::connect::<()>(url, peer, name, Some(&tls)).map(|it| it.link.transport)
    };
    let name = "wardgate.policy.v1.PolicyService";
    let policy = PolicyServiceClient::new(link(policy, Peer::Policy, name)?);
    let name = "wardgate.toolrunner.v1.ToolRunnerService";
    let runner = ToolRunnerServiceClient::new(link(runner, Peer::ToolRunner, name)?);
    let name = "wardgate.memory.v1.MemoryService";
    let memory = MemoryServiceClient::new(link(memory, Peer::Memory, name)?);

    // The file has one token per line. The policy service is asked about each in turn, so that a cached decision for
    // one caller does not serve them all.
    let tokens = fs::read_to_string(tokens)?;
    let tokens: Vec<&str> = tokens.lines().filter(|line| !line.is_empty()).collect();
    let token = *tokens.first().ok_or("the file of tokens is empty")?;
    let caller = caller(token)?;
    let question = question(runner.clone(), token, tool, arguments).await?;
    let decision = decision(policy, &question).await?;
    let call = call(&question, &caller, &decision);
    prove(runner, call.clone()).await?;
    let (additions, contexts) = conversations(memory, token).await?;

    let json = Json(DescriptorPool::decode(wardgate_proto::DESCRIPTORS)?);
    let questions = questions(&question, &tokens);
    let append = append(&question, caller, decision);
    let out = PathBuf::from(out);
    fs::create_dir_all(&out)?;
    for (file, requests) in [
        (
            "authorize",
            json.convert_all("wardgate.policy.v1.AuthorizeRequest", questions)?,
        ),
        (
            "call_tool",
            json.convert_all("wardgate.toolrunner.v1.CallToolRequest", [call])?,
        ),
        (
            "append",
            json.convert_all("wardgate.audit.v1.AppendRequest", [append])?,
        ),
        (
            "add_messages",
            json.convert_all("wardgate.memory.v1.AddMessagesRequest", additions)?,
        ),
        (
            "get_context",
            json.convert_all("wardgate.memory.v1.GetContextRequest", contexts)?,
        ),
    ] {
        fs::write(out.join(file).with_extension("json"), requests)?;
    }
    Ok(())
}

/// Returns the caller of a token without attributes, as the gateway derives it.
fn caller(token: &str) -> Result<Caller, Failure> {
    #[derive(Deserialize)]
    struct Claims {
        iss: String,
        sub: String,
        roles: Vec<String>,
        exp: i64,
    }
    let claims = token.split('.').nth(1).ok_or("a token has three parts")?;
    let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?;
    Ok(Caller {
        issuer: claims.iss,
        subject: claims.sub,
        roles: claims.roles,
        token_id: "load".to_owned(),
        expires_at: Some(Timestamp::from_seconds(claims.exp).into()),
        ..Caller::default()
    })
}

async fn question(
    mut runner: ToolRunnerServiceClient<Link>,
    token: &str,
    tool: &str,
    arguments: &str,
) -> Result<policy::AuthorizeRequest, Failure> {
    let listed = runner.list_tools(runner::ListToolsRequest {}).await?;
    let mut facts = listed
        .into_inner()
        .tools
        .into_iter()
        .filter_map(|tool| tool.facts);
    let facts = facts.find(|facts| facts.name == tool);
    Ok(policy::AuthorizeRequest {
        caller_token: token.to_owned(),
        tool: Some(facts.ok_or_else(|| format!("no tool is called {tool}"))?),
        arguments_json: arguments.to_owned().into(),
        client_ip: "192.0.2.1".to_owned(),
        unknown_tool: String::new(),
        approval: None,
        call: None,
    })
}

/// Returns the same request for many callers.
fn questions(
    question: &policy::AuthorizeRequest,
    tokens: &[&str],
) -> Vec<policy::AuthorizeRequest> {
    let of = |token: &&str| policy::AuthorizeRequest {
        caller_token: (*token).to_owned(),
        ..question.clone()
    };
    tokens.iter().map(of).collect()
}

async fn decision(
    mut policy: PolicyServiceClient<Link>,
    question: &policy::AuthorizeRequest,
) -> Result<policy::Decision, Failure> {
    let answer = policy.authorize(question.clone()).await?.into_inner();
    let decision = answer.decision.unwrap_or_default();
    match decision.permit {
        Some(_) => Ok(decision),
        None => Err("the policy does not permit this call".into()),
    }
}

fn call(
    question: &policy::AuthorizeRequest,
    caller: &Caller,
    decision: &policy::Decision,
) -> runner::CallToolRequest {
    runner::CallToolRequest {
        call_id: NEW_ID.to_owned(),
        caller: Some(caller.clone()),
        tool: question.tool.clone().unwrap_or_default().name,
        arguments_json: question.arguments_json.clone(),
        permit: decision.permit.clone(),
        ..runner::CallToolRequest::default()
    }
}

/// Returns the request that appends the outcome of such a call.
fn append(
    question: &policy::AuthorizeRequest,
    caller: Caller,
    decision: policy::Decision,
) -> audit::AppendRequest {
    let tool = question.tool.clone().unwrap_or_default();
    let outcome = audit::Outcome {
        call: Some(audit::CallFacts {
            call_id: NEW_ID.to_owned(),
            issuer: caller.issuer,
            subject: caller.subject,
            roles: caller.roles,
            token_id: caller.token_id,
            client_ip: question.client_ip.clone(),
            protocol: "2026-07-28".to_owned(),
            requested_tool: tool.name.clone(),
            tool: tool.name,
            definition_digest: tool.definition_digest,
            arguments_digest: Digest::compute(&question.arguments_json).to_wire(),
            decision_id: decision.decision_id,
            policy_hash: decision.policy_hash,
            policies: decision.policies,
            ..audit::CallFacts::default()
        }),
        status: audit::Status::Ok.into(),
        rows: 2,
        result_digest: Digest::compute(b"result").to_wire(),
        duration: Some(prost_types::Duration::default()),
        ..audit::Outcome::default()
    };
    let record = audit::Record {
        time: Some(Ambient::system().now().into()),
        event: Some(audit::record::Event::Outcome(outcome)),
    };
    audit::AppendRequest {
        records: vec![audit::NewRecord {
            record: Some(Box::new(record)),
            ..audit::NewRecord::default()
        }],
        ..audit::AppendRequest::default()
    }
}

/// Creates conversations, and returns a request that adds a message to each, and one that reads its context.
async fn conversations(
    mut memory: MemoryServiceClient<Link>,
    token: &str,
) -> Result<
    (
        Vec<memory::AddMessagesRequest>,
        Vec<memory::GetContextRequest>,
    ),
    Failure,
> {
    let (mut additions, mut contexts) = (Vec::new(), Vec::new());
    for at in 0..CONVERSATIONS {
        let (caller_token, conversation_id) = (token.to_owned(), format!("load-{at}"));
        let begun = memory::GetOrCreateRequest {
            caller_token: caller_token.clone(),
            conversation_id: conversation_id.clone(),
        };
        memory.get_or_create(begun).await?;
        additions.push(memory::AddMessagesRequest {
            caller_token: caller_token.clone(),
            conversation_id: conversation_id.clone(),
            messages: vec![memory::Message {
                role: memory::Role::User.into(),
                source: memory::Source::Person.into(),
                content: "How are the patients of today's round?".to_owned(),
                ..memory::Message::default()
            }],
            ..memory::AddMessagesRequest::default()
        });
        contexts.push(memory::GetContextRequest {
            caller_token,
            conversation_id,
            ..memory::GetContextRequest::default()
        });
    }
    Ok((additions, contexts))
}

/// Checks that the tool succeeds, because ghz counts the response of a failing tool as a success.
async fn prove(
    mut runner: ToolRunnerServiceClient<Link>,
    call: runner::CallToolRequest,
) -> Result<(), Failure> {
    let call_id = CallId::new(&Ambient::system()).to_string();
    let call = runner::CallToolRequest { call_id, ..call };
    let mut events = runner.call_tool(call).await?.into_inner();
    while let Some(event) = events.message().await? {
        if let Some(runner::call_tool_response::Event::Result(result)) = event.event {
            if result.is_error {
                return Err("the tool fails; see the log of the tool-runner".into());
            }
            return Ok(());
        }
    }
    Err("the tool gives no result".into())
}

/// Converts messages to the JSON mapping of protobuf.
struct Json(DescriptorPool);

impl Json {
    fn convert_all<M: prost::Message>(
        &self,
        name: &str,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<String, Failure> {
        let descriptor = self.0.get_message_by_name(name);
        let descriptor = descriptor.ok_or_else(|| format!("there is no message {name}"))?;
        let mut lines = Vec::new();
        for message in messages {
            let mut dynamic = DynamicMessage::new(descriptor.clone());
            dynamic.transcode_from(&message)?;
            lines.push(serde_json::to_string(&dynamic)?);
        }
        Ok(format!("[{}]", lines.join(",\n")))
    }
}
