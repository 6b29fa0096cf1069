//! `wardgate conversations`: skeletons, erasure and legal holds of a running system. Never a text.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use wardgate_domain::{Hold, HoldTarget, Skeleton};
use wardgate_rpc::client::MemoryClient;

use crate::Failure;
use crate::cli::{ConversationsArgs, ConversationsCommand, HoldChange, ListOptions, RunningSystem};
use crate::compose;
use crate::config::{OperatorWiring, Settings};

use super::operator::operator_name;
use super::running::operator_socket;
use super::terminal::cell;

/// Longer than any part of the way may take, the record and the store included.
const LIMIT: Duration = Duration::from_secs(10);

/// Skeletons asked for at once.
const PAGE: u32 = 200;

pub(crate) async fn run(arguments: ConversationsArgs) -> Result<(), Failure> {
    match arguments.command {
        ConversationsCommand::List(listing) => list(listing).await,
        ConversationsCommand::Export { whose, system } => {
            let every = ListOptions {
                whose,
                system,
                limit: u32::MAX,
                json: true,
            };
            list(every).await
        }
        ConversationsCommand::Erase { key, by, system } => {
            client(&system)?.erase(key, &operator_name(by)).await?;
            println!("conversation {key} is erased");
            Ok(())
        }
        ConversationsCommand::Hold(change) => hold(change, true).await,
        ConversationsCommand::Release(change) => hold(change, false).await,
        ConversationsCommand::Holds { system, json } => holds(&system, json).await,
    }
}

async fn list(listing: ListOptions) -> Result<(), Failure> {
    let client = client(&listing.system)?;
    let mut out = std::io::stdout().lock();
    if !listing.json {
        writeln!(out, "{HEADING}")?;
    }
    let (mut left, mut token) = (listing.limit, String::new());
    while left > 0 {
        let (tenant, subject) = (&listing.whose.tenant, &listing.whose.user);
        let asked = client.survey(tenant, subject, left.min(PAGE), &token);
        let (skeletons, next) = asked.await?;
        left -= left.min(u32::try_from(skeletons.len()).unwrap_or(u32::MAX));
        for skeleton in &skeletons {
            let line = if listing.json {
                line(skeleton).to_string()
            } else {
                row(skeleton)
            };
            // A reader that has seen enough (`| head`) closes the pipe; that is no failure.
            match writeln!(out, "{line}") {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
        }
        match next {
            Some(next) => token = next,
            None => break,
        }
    }
    Ok(())
}

/// Over the columns of [`row`].
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

async fn hold(change: HoldChange, held: bool) -> Result<(), Failure> {
    let target = match (change.key, change.user, change.tenant) {
        (Some(key), ..) => HoldTarget::Conversation(key),
        (None, Some(subject), tenant) => HoldTarget::Person {
            tenant: tenant.unwrap_or_default(),
            subject,
        },
        (None, None, tenant) => HoldTarget::Tenant(tenant.unwrap_or_default()),
    };
    let by = operator_name(change.by);
    client(&change.system)?.set_hold(&target, held, &by).await?;
    let done = if held { "held" } else { "no longer held" };
    println!("{} is {done}", words(&target));
    Ok(())
}

async fn holds(system: &RunningSystem, json: bool) -> Result<(), Failure> {
    for hold in client(system)?.list_holds().await? {
        if json {
            println!("{}", hold_line(&hold));
        } else {
            println!(
                "{} {} by {}",
                words(&hold.target),
                hold.set_at,
                cell(&hold.set_by)
            );
        }
    }
    Ok(())
}

fn words(target: &HoldTarget) -> String {
    match target {
        HoldTarget::Conversation(key) => format!("conversation {key}"),
        HoldTarget::Person { tenant, subject } if tenant.is_empty() => {
            format!("everything of user {}", cell(subject))
        }
        HoldTarget::Person { tenant, subject } => {
            let (subject, tenant) = (cell(subject), cell(tenant));
            format!("everything of user {subject} of tenant {tenant}")
        }
        HoldTarget::Tenant(tenant) => format!("everything of tenant {}", cell(tenant)),
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

/// The memory service of a running system.
fn client(system: &RunningSystem) -> Result<MemoryClient, Failure> {
    let link = if let Some(file) = &system.config {
        let wiring: OperatorWiring = Settings::load(file)?.wiring("operator")?;
        let url = wiring.links.memory.ok_or(
            "operator.links.memory is missing: name the service's address, for example https://127.0.0.1:7004",
        )?;
        compose::memory(&url, wiring.tls.as_ref())?.link
    } else {
        operator_socket(&system.data_dir)?.into()
    };
    Ok(MemoryClient::new(link, LIMIT))
}
