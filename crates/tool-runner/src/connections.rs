//! The RPC methods about what people let sources do in their name.
//!
//! ```text
//!   describe ─▶ start ─▶ the person at the authorization server ─▶ finish: record ─▶ tokens ─▶ store
//!   remove: record ─▶ store ─▶ revoked at the authorization server
//! ```

use std::sync::Arc;

use futures::future::join_all;
use tonic::Status;
use tracing::warn;
use wardgate_domain::{AdminChange, InvalidMessage, SwitchScope};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;

use crate::Error;
use crate::loaded::LoadedCatalogue;
use crate::store::Store;
use crate::store::connections::Connection;
use crate::switchboard::Switchboard;
use wardgate_egress::{
    AuthError, ConnectError, Grant, GrantCallback, GrantRequest, PerUser, Person,
};

/// Longest text of a request, in bytes.
const MAX_TEXT: usize = 4_096;

pub(crate) async fn describe(
    loaded: &LoadedCatalogue,
    request: pb::DescribeConnectionRequest,
) -> Result<pb::DescribeConnectionResponse, Status> {
    let connect = required(request.connect, "connect")?;
    let person = person(request.person)?;
    let per_user = of_source(loaded, &connect.source)?;
    let described = per_user.describe(&person, some(&connect.scope)).await;
    let described = described.map_err(|error| failed(&connect.source, &error))?;
    Ok(pb::DescribeConnectionResponse {
        service_host: described.service,
        server_host: described.server,
        scope: described.scope.unwrap_or_default(),
    })
}

pub(crate) async fn start(
    loaded: &LoadedCatalogue,
    request: pb::StartConnectionRequest,
) -> Result<pb::StartConnectionResponse, Status> {
    let connect = required(request.connect, "connect")?;
    let person = person(request.person)?;
    let per_user = of_source(loaded, &connect.source)?;
    let started = per_user.start(GrantRequest {
        person: &person,
        redirect_uri: text(&request.redirect_uri, "redirect_uri")?,
        state: text(&request.state, "state")?,
        client_metadata_url: some(&request.client_metadata_url),
        scope: some(&connect.scope),
    });
    let started = started
        .await
        .map_err(|error| failed(&connect.source, &error))?;
    Ok(pb::StartConnectionResponse {
        authorization_url: started.authorization_url.into(),
        pending: started.pending.into(),
    })
}

pub(crate) async fn finish(
    loaded: &LoadedCatalogue,
    board: &Switchboard,
    request: pb::FinishConnectionRequest,
) -> Result<pb::FinishConnectionResponse, Status> {
    let source = request.source;
    let person = person(request.person)?;
    let per_user = of_source(loaded, &source)?;
    let back = GrantCallback {
        person: &person,
        pending: request.pending.into(),
        code: text(&request.code, "code")?,
        issuer: request.issuer.as_deref(),
    };
    let change = |failed| AdminChange {
        actor: person.subject.clone(),
        action: "connection.make".to_owned(),
        target: source.clone(),
        scope: scope_of(&person.subject, &person.issuer),
        detail_digest: None,
        failed,
    };
    record(board, change(false)).await?;
    if let Err(error) = per_user.finish(back).await {
        record(board, change(true)).await?;
        return Err(failed(&source, &error));
    }
    Ok(pb::FinishConnectionResponse {})
}

pub(crate) async fn list(store: &Store) -> Result<pb::ListConnectionsResponse, Status> {
    let connections = store.connections().await.map_err(status)?;
    Ok(pb::ListConnectionsResponse {
        connections: connections.into_iter().map(Into::into).collect(),
    })
}

/// Also of sources that are not configured any more. What was granted to the others is taken back at their servers.
pub(crate) async fn remove(
    loaded: &LoadedCatalogue,
    board: &Switchboard,
    request: pb::RemoveConnectionsRequest,
) -> Result<pb::RemoveConnectionsResponse, Status> {
    let (subject, issuer) = (text(&request.subject, "subject")?, &request.issuer);
    let change = |failed| AdminChange {
        actor: request.by.clone(),
        action: "connection.remove".to_owned(),
        target: some(&request.source).unwrap_or("*").to_owned(),
        scope: scope_of(subject, issuer),
        detail_digest: None,
        failed,
    };
    text(&request.by, "by")?;
    record(board, change(false)).await?;
    let store = board.store();
    let grants = grants(loaded, store, (subject, issuer, &request.source)).await;
    match store.disconnect(subject, issuer, &request.source).await {
        Ok(removed) => {
            let revoking = grants.into_iter();
            join_all(revoking.map(|(of, grant)| async move { of.revoke(grant).await })).await;
            Ok(pb::RemoveConnectionsResponse { removed })
        }
        Err(error) => {
            record(board, change(true)).await?;
            Err(status(error))
        }
    }
}

/// What is to be taken back, of sources that are configured. What cannot be read is forgotten all the same.
async fn grants(
    loaded: &LoadedCatalogue,
    store: &Store,
    of: (&str, &str, &str),
) -> Vec<(Arc<PerUser>, Grant)> {
    let connections = store.connections_of(of).await.unwrap_or_default();
    let mut grants = Vec::new();
    for Connection { source, person, .. } in connections {
        if let Some(per_user) = loaded.per_user(&source)
            && let Some(grant) = per_user.grant(&person).await
        {
            grants.push((Arc::clone(per_user), grant));
        }
    }
    grants
}

fn of_source<'a>(loaded: &'a LoadedCatalogue, source: &str) -> Result<&'a Arc<PerUser>, Status> {
    loaded.per_user(source).ok_or_else(|| {
        status(Error::Connection {
            reason: ErrorReason::InvalidMessage,
            text: "there is no source of that name whose `auth` is authorization_code".to_owned(),
        })
    })
}

async fn record(board: &Switchboard, change: AdminChange) -> Result<(), Status> {
    board.record_change(change).await.map_err(status)
}

fn status(error: impl Into<Error>) -> Status {
    wardgate_rpc::status(&error.into())
}

/// The operator reads what to mend; nothing in it is the person's.
fn failed(source: &str, error: &ConnectError) -> Status {
    warn!(source, %error, "a source could not be connected for a caller");
    let reason = match error {
        ConnectError::Store | ConnectError::Auth(AuthError::Endpoint(_) | AuthError::NoStore) => {
            ErrorReason::Unavailable
        }
        ConnectError::Lapsed | ConnectError::OtherIssuer => ErrorReason::Conflict,
        ConnectError::Auth(AuthError::Refused { .. }) => ErrorReason::Denied,
        ConnectError::Auth(_) | ConnectError::NoPkce | ConnectError::NoClient => {
            ErrorReason::Internal
        }
    };
    status(Error::Connection {
        reason,
        text: error.to_string(),
    })
}

fn scope_of(subject: &str, issuer: &str) -> String {
    let scope = SwitchScope::User {
        subject: subject.to_owned(),
        issuer: some(issuer).map(str::to_owned),
    };
    scope.to_string()
}

fn person(person: Option<pb::Person>) -> Result<Person, Status> {
    let person = required(person, "person")?;
    text(&person.issuer, "person.issuer")?;
    text(&person.subject, "person.subject")?;
    Ok(Person {
        tenant: person.tenant,
        issuer: person.issuer,
        subject: person.subject,
    })
}

fn required<T>(value: Option<T>, field: &'static str) -> Result<T, Status> {
    value.ok_or_else(|| wardgate_rpc::invalid(&InvalidMessage::field(field, "is missing")))
}

fn text<'a>(text: &'a str, field: &'static str) -> Result<&'a str, Status> {
    if text.is_empty() || text.len() > MAX_TEXT || text.contains(char::is_control) {
        let problem = format!("is not 1 to {MAX_TEXT} bytes without control characters");
        return Err(wardgate_rpc::invalid(&InvalidMessage::field(
            field, problem,
        )));
    }
    Ok(text)
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

impl From<Connection> for pb::Connection {
    fn from(connection: Connection) -> Self {
        Self {
            source: connection.source,
            person: Some(pb::Person {
                tenant: connection.person.tenant,
                issuer: connection.person.issuer,
                subject: connection.person.subject,
            }),
            connected_at: Some(connection.connected_at.into()),
            changed_at: Some(connection.changed_at.into()),
        }
    }
}
