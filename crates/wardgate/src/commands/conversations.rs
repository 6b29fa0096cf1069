//! `wardgate conversations`: metadata, erasure and legal holds of the conversations of a running system, never their
//! content; and the move of their store to a new master key.

mod rekey;

use std::time::Duration;

use serde_json::{Value, json};
use wardgate_domain::{BearerToken, Hold, HoldTarget, Skeleton};
use wardgate_rpc::client::MemoryClient;

use crate::Failure;
use crate::cli::{
    ConversationsArgs, ConversationsCommand, HoldChange, ListOptions, LogVerbosity, OutputFormat,
    OwnerFilter, RunningSystem,
};
use crate::compose;
use crate::config::{OperatorWiring, Settings};

use super::operator::sign_in_token;
use super::output::RowPrinter;
use super::running::operator_socket;
use super::terminal::cell;

/// Timeout of a request, which is longer than the timeouts of all services behind it, including the record and the store.
const LIMIT: Duration = Duration::from_secs(10);

/// Maximum number of skeletons per page.
const PAGE: u32 = 200;

pub(crate) async fn run(
    arguments: ConversationsArgs,
    verbosity: LogVerbosity,
) -> Result<(), Failure> {
    match arguments.command {
        ConversationsCommand::List(ListOptions {
            whose,
            operator,
            system,
            limit,
            output,
        }) => {
            let token = sign_in_token(&operator).await?;
            list(&client(&system)?, &token, &whose, limit, output.format()).await
        }
        ConversationsCommand::Export {
            whose,
            operator,
            system,
        } => {
            let token = sign_in_token(&operator).await?;
            let (client, format) = (client(&system)?, OutputFormat::Jsonl);
            list(&client, &token, &whose, u32::MAX, format).await
        }
        ConversationsCommand::Erase {
            key,
            operator,
            system,
        } => {
            let token = sign_in_token(&operator).await?;
            client(&system)?.erase(&token, key).await?;
            println!("conversation {key} is erased");
            Ok(())
        }
        ConversationsCommand::Rekey(options) => rekey::run(&options, verbosity).await,
        ConversationsCommand::Hold(change) => set_hold(change, true).await,
        ConversationsCommand::Release(change) => set_hold(change, false).await,
        ConversationsCommand::Holds {
            operator,
            system,
            output,
        } => {
            let token = sign_in_token(&operator).await?;
            holds(&client(&system)?, &token, output.format()).await
        }
    }
}

async fn list(
    client: &MemoryClient,
    operator: &BearerToken,
    whose: &OwnerFilter,
    limit: u32,
    format: OutputFormat,
) -> Result<(), Failure> {
    let (tenant, user) = (&whose.tenant, &whose.user);
    let mut rows = RowPrinter::stdout(format, Some(HEADING))?;
    let (mut left, mut token) = (limit, String::new());
    while left > 0 && !rows.is_closed() {
        let page = client.survey(operator, tenant, user, left.min(PAGE), &token);
        let (skeletons, next) = page.await?;
        left -= left.min(u32::try_from(skeletons.len()).unwrap_or(u32::MAX));
        for skeleton in &skeletons {
            rows.print(&line(skeleton).to_string(), || row(skeleton))?;
        }
        match next {
            Some(next) => token = next,
            None => break,
        }
    }
    rows.finish()
}

/// Heading of the columns of [`row`].
const HEADING: &str = "KEY                                   USER              TENANT            MESSAGES  UPDATED                      STATE";

fn row(skeleton: &Skeleton) -> String {
    let state = match (skeleton.erased_at, skeleton.held) {
        (Some(_), _) => "erased",
        (None, true) => "held",
        (None, false) => "-",
    };
    format!(
        "{}  {:<16}  {:<16}  {:>8}  {:<27}  {state}",
        skeleton.key,
        cell(&skeleton.subject),
        cell(&skeleton.tenant),
        skeleton.messages,
        skeleton.updated_at.to_string(),
    )
}

fn line(skeleton: &Skeleton) -> Value {
    json!({
        "key": skeleton.key.to_string(),
        "tenant": skeleton.tenant,
        "issuer": skeleton.issuer,
        "user": skeleton.subject,
        "created_at": skeleton.created_at.to_string(),
        "updated_at": skeleton.updated_at.to_string(),
        "messages": skeleton.messages,
        "held": skeleton.held,
        "erased_at": skeleton.erased_at.map(|time| time.to_string()),
    })
}

async fn set_hold(change: HoldChange, held: bool) -> Result<(), Failure> {
    let target = match (change.key, change.user, change.tenant) {
        (Some(key), ..) => HoldTarget::Conversation(key),
        (None, Some(subject), tenant) => HoldTarget::Person {
            tenant: tenant.unwrap_or_default(),
            subject,
        },
        (None, None, tenant) => HoldTarget::Tenant(tenant.unwrap_or_default()),
    };
    let token = sign_in_token(&change.operator).await?;
    let client = client(&change.system)?;
    client.set_hold(&token, &target, held).await?;
    let done = if held { "held" } else { "no longer held" };
    println!("{} is {done}", words(&target));
    Ok(())
}

async fn holds(
    client: &MemoryClient,
    operator: &BearerToken,
    format: OutputFormat,
) -> Result<(), Failure> {
    let holds = client.list_holds(operator).await?;
    let mut rows = RowPrinter::stdout(format, None)?;
    for hold in holds {
        rows.print(&hold_line(&hold).to_string(), || {
            let (target, by) = (words(&hold.target), cell(&hold.set_by));
            format!("{target} {} by {by}", hold.set_at)
        })?;
    }
    rows.finish()
}

fn words(target: &HoldTarget) -> String {
    match target {
        HoldTarget::Conversation(key) => format!("conversation {key}"),
        HoldTarget::Person { tenant, subject } if tenant.is_empty() => {
            format!("all conversations of user {}", cell(subject))
        }
        HoldTarget::Person { tenant, subject } => {
            let (subject, tenant) = (cell(subject), cell(tenant));
            format!("all conversations of user {subject} of tenant {tenant}")
        }
        HoldTarget::Tenant(tenant) => format!("all conversations of tenant {}", cell(tenant)),
    }
}

fn hold_line(hold: &Hold) -> Value {
    let mut line = json!({ "set_by": hold.set_by, "set_at": hold.set_at.to_string() });
    match &hold.target {
        HoldTarget::Conversation(key) => line["key"] = key.to_string().into(),
        HoldTarget::Person { tenant, subject } => {
            line["user"] = subject.as_str().into();
            line["tenant"] = tenant.as_str().into();
        }
        HoldTarget::Tenant(tenant) => line["tenant"] = tenant.as_str().into(),
    }
    line
}

/// Returns a client of the memory service of a running system.
fn client(system: &RunningSystem) -> Result<MemoryClient, Failure> {
    let link = if let Some(file) = &system.config {
        let wiring: OperatorWiring = Settings::load(file)?.wiring("operator")?;
        let url = wiring.links.memory.ok_or(
            "operator.links.memory is missing: set it to the address of the service, for example https://127.0.0.1:7004",
        )?;
        compose::memory(&url, wiring.tls.as_ref())?.link
    } else {
        operator_socket(&system.data_dir)?.into()
    };
    Ok(MemoryClient::new(link, LIMIT))
}
