//! Converts and validates messages about connections, with which people let sources act in their name.

use wardgate_domain::InvalidMessage;
use wardgate_egress::{GrantCallback, GrantDescription, GrantRequest, Person, StartedGrant};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_rpc::client::{ConnectTarget, RemoveConnections};

use crate::store::connections::StoredConnection;

/// Maximum length of a text in a request, in bytes.
const MAX_TEXT: usize = 4_096;

pub(super) fn connect(connect: Option<pb::Connect>) -> Result<ConnectTarget, InvalidMessage> {
    let connect = connect.ok_or_else(|| InvalidMessage::field("connect", "is missing"))?;
    Ok(connect.into())
}

pub(super) fn person(person: Option<pb::Person>) -> Result<Person, InvalidMessage> {
    let person = person.ok_or_else(|| InvalidMessage::field("person", "is missing"))?;
    text(&person.issuer, "person.issuer")?;
    text(&person.subject, "person.subject")?;
    Ok(Person {
        tenant: person.tenant,
        issuer: person.issuer,
        subject: person.subject,
    })
}

pub(super) fn grant_request<'a>(
    request: &'a pb::StartConnectionRequest,
    person: &'a Person,
    connect: &'a ConnectTarget,
) -> Result<GrantRequest<'a>, InvalidMessage> {
    Ok(GrantRequest {
        person,
        redirect_uri: text(&request.redirect_uri, "redirect_uri")?,
        state: text(&request.state, "state")?,
        client_metadata_url: present(&request.client_metadata_url),
        scope: connect.scope.as_deref(),
    })
}

pub(super) fn grant_callback<'a>(
    request: &'a pb::FinishConnectionRequest,
    person: &'a Person,
) -> Result<GrantCallback<'a>, InvalidMessage> {
    Ok(GrantCallback {
        person,
        pending: request.pending.to_vec(),
        code: text(&request.code, "code")?,
        issuer: request.issuer.as_deref(),
    })
}

pub(super) fn remove_connections(
    request: &pb::RemoveConnectionsRequest,
) -> Result<RemoveConnections<'_>, InvalidMessage> {
    Ok(RemoveConnections {
        subject: text(&request.subject, "subject")?,
        issuer: present(&request.issuer),
        source: present(&request.source),
    })
}

fn text<'a>(text: &'a str, field: &'static str) -> Result<&'a str, InvalidMessage> {
    if text.is_empty() || text.len() > MAX_TEXT || text.contains(char::is_control) {
        let problem = format!("is not 1 to {MAX_TEXT} bytes without control characters");
        return Err(InvalidMessage::field(field, problem));
    }
    Ok(text)
}

/// Returns `None` for an empty text.
fn present(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

pub(super) fn description(described: GrantDescription) -> pb::DescribeConnectionResponse {
    pb::DescribeConnectionResponse {
        service_host: described.service,
        server_host: described.server,
        scope: described.scope.unwrap_or_default(),
    }
}

pub(super) fn started_grant(started: StartedGrant) -> pb::StartConnectionResponse {
    pb::StartConnectionResponse {
        authorization_url: started.authorization_url.into(),
        pending: started.pending.into(),
    }
}

impl From<StoredConnection> for pb::Connection {
    fn from(connection: StoredConnection) -> Self {
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
