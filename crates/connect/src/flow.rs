//! The handlers of a consent flow, in the order of its requests.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tracing::{info, warn};
use wardgate_domain::{Digest, is_same_secret};
use wardgate_edge::{leave_page, redirect_browser};
use wardgate_egress::{CodeRequest, ConnectError};
use wardgate_gateway_store::Purpose;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{FinishConnection, StartConnection};

use crate::ConnectPages;
use crate::consent_flow::{ConnectTicket, ConsentFlow, no_cookie};
use crate::pages::{self, ConnectProblem};
use crate::sign_in::{SignIn, SignInError};
use crate::{CALLBACK, CLIENT, CONSENT, SIGNED_IN};

/// Handles `GET /connect/{link}`. It only redirects to the issuer, so a link that was opened once can still be used.
pub(crate) async fn enter(
    connect_pages: Arc<ConnectPages>,
    link: String,
    parts: Parts,
) -> Response {
    let entered = async {
        let sign_in = ours(&connect_pages, &parts)?;
        let ticket = ConnectTicket::open(&connect_pages.parts.sealer, &link)
            .ok_or(ConnectProblem::Lapsed)?;
        let ambient = &connect_pages.parts.ambient;
        let [state, nonce, verifier] = [(); 3].map(|()| ambient.random_text());
        let redirect_uri = format!("{}{SIGNED_IN}", connect_pages.parts.public_url);
        let request = CodeRequest {
            redirect_uri: &redirect_uri,
            verifier: &verifier,
        };
        let url = sign_in
            .provider
            .authorization_url(request, &state, &[("scope", "openid"), ("nonce", &nonce)])
            .await
            .map_err(|error| not_signed_in(&error.into()))?;
        let consent = ConsentFlow::SigningIn {
            ticket,
            state,
            nonce,
            verifier,
        };
        Ok(with(
            &connect_pages,
            &consent,
            redirect_browser(url.as_str()),
        ))
    };
    render_outcome(entered.await)
}

/// Handles `GET /connect/signed-in`. It continues only for the caller for whom the link was made.
pub(crate) async fn signed_in(connect_pages: Arc<ConnectPages>, parts: Parts) -> Response {
    let signed_in = async {
        let sign_in = ours(&connect_pages, &parts)?;
        let Some(ConsentFlow::SigningIn {
            ticket,
            state,
            nonce,
            verifier,
        }) = ConsentFlow::from_cookie(&connect_pages.parts.sealer, &parts.headers)
        else {
            return Err(ConnectProblem::Lapsed);
        };
        let query = query(&parts);
        came_back(&connect_pages, &query, &state).await?;
        let code = query.get("code").ok_or(ConnectProblem::NotSignedIn)?;
        let redirect_uri = format!("{}{SIGNED_IN}", connect_pages.parts.public_url);
        let request = CodeRequest {
            redirect_uri: &redirect_uri,
            verifier: &verifier,
        };
        let issuer = query.get("iss").map(String::as_str);
        let user = sign_in.verify_user(request, &nonce, code, issuer).await;
        let user = user.map_err(|error| not_signed_in(&error))?;
        let person = ticket.person();
        if (user.issuer(), user.subject()) != (&*person.issuer, &*person.subject) {
            return Err(ConnectProblem::SomebodyElse);
        }
        let token = connect_pages.parts.ambient.random_text();
        let consent = ConsentFlow::Consenting { ticket, token };
        Ok(with(&connect_pages, &consent, redirect_browser(CONSENT)))
    };
    render_outcome(signed_in.await)
}

/// Handles `GET /connect/consent`.
pub(crate) async fn consent(connect_pages: Arc<ConnectPages>, parts: Parts) -> Response {
    let asked = async {
        ours(&connect_pages, &parts)?;
        let Some(ConsentFlow::Consenting { ticket, token }) =
            ConsentFlow::from_cookie(&connect_pages.parts.sealer, &parts.headers)
        else {
            return Err(ConnectProblem::Lapsed);
        };
        let (person, connect) = (ticket.person(), ticket.connect());
        let described = connect_pages
            .parts
            .runner
            .describe_connection(&person, &connect);
        let described = described.await;
        let described = described.map_err(|error| {
            warn!(source = connect.source, %error, "a source cannot be connected");
            ConnectProblem::Unavailable
        })?;
        Ok(pages::consent(&connect.source, &described, &token))
    };
    render_outcome(asked.await)
}

/// Handles `POST /connect/consent`. From here on the link is used up.
pub(crate) async fn decide(connect_pages: Arc<ConnectPages>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let decided = async {
        ours(&connect_pages, &parts)?;
        let Some(ConsentFlow::Consenting { ticket, token }) =
            ConsentFlow::from_cookie(&connect_pages.parts.sealer, &parts.headers)
        else {
            return Err(ConnectProblem::Lapsed);
        };
        let limits = connect_pages.parts.body_limits;
        let mut body = body;
        let body = wardgate_edge::read_body(&mut body, limits).await;
        let body = body.map_err(|_| ConnectProblem::Foreign)?;
        let form: HashMap<String, String> =
            url::form_urlencoded::parse(&body).into_owned().collect();
        let is_from_our_page = parts.headers.get(header::ORIGIN).is_none_or(|origin| {
            origin.as_bytes() == origin_of(&connect_pages.parts.public_url).as_bytes()
        });
        if !is_from_our_page
            || !form
                .get("token")
                .is_some_and(|given| is_same_secret(given, &token))
        {
            return Err(ConnectProblem::Foreign);
        }
        use_id_once(&connect_pages, ticket.id, Purpose::ConnectLink).await?;
        if form.get("decision").map(String::as_str) != Some("allow") {
            return Ok(without_cookie(pages::denied_page()));
        }
        away(&connect_pages, ticket).await
    };
    render_outcome(decided.await)
}

/// Redirects the user to the authorization server of the source.
async fn away(
    connect_pages: &ConnectPages,
    ticket: ConnectTicket,
) -> Result<Response, ConnectProblem> {
    let (person, connect) = (ticket.person(), ticket.connect());
    let state = connect_pages.parts.ambient.random_text();
    let redirect_uri = format!("{}{CALLBACK}", connect_pages.parts.public_url);
    let document = format!("{}{CLIENT}", connect_pages.parts.public_url);
    let started = connect_pages
        .parts
        .runner
        .start_connection(StartConnection {
            person: &person,
            connect: &connect,
            redirect_uri: &redirect_uri,
            state: &state,
            // Authorization servers can read the document only over HTTPS.
            client_metadata_url: document.starts_with("https://").then_some(&document),
        });
    let started = started.await.map_err(|error| {
        warn!(source = connect.source, %error, "a source cannot be connected");
        ConnectProblem::Unavailable
    })?;
    let consent = ConsentFlow::AtSource {
        ticket,
        state,
        pending: URL_SAFE_NO_PAD.encode(&started.pending),
    };
    Ok(with(
        connect_pages,
        &consent,
        leave_page(&started.authorization_url),
    ))
}

/// Handles `GET /connect/callback`.
pub(crate) async fn callback(connect_pages: Arc<ConnectPages>, parts: Parts) -> Response {
    let finished = async {
        ours(&connect_pages, &parts)?;
        let Some(ConsentFlow::AtSource {
            ticket,
            state,
            pending,
        }) = ConsentFlow::from_cookie(&connect_pages.parts.sealer, &parts.headers)
        else {
            return Err(ConnectProblem::Lapsed);
        };
        let query = query(&parts);
        came_back(&connect_pages, &query, &state).await?;
        let code = query.get("code").ok_or(ConnectProblem::NotGranted)?;
        let pending = URL_SAFE_NO_PAD.decode(pending);
        let pending = pending.map_err(|_| ConnectProblem::Lapsed)?;
        let (person, connect) = (ticket.person(), ticket.connect());
        let source = connect.source.as_str();
        let finish = connect_pages
            .parts
            .runner
            .finish_connection(FinishConnection {
                person: &person,
                connect: &connect,
                pending: pending.into(),
                code,
                issuer: query.get("iss").map(String::as_str),
            });
        finish.await.map_err(|error| {
            warn!(source, %error, "a source was not authorized");
            match error.reason() {
                ErrorReason::Conflict | ErrorReason::Denied => ConnectProblem::NotGranted,
                _ => ConnectProblem::Unavailable,
            }
        })?;
        info!(
            source,
            "a source was authorized to act in the name of a caller"
        );
        Ok(without_cookie(pages::connected_page(source)))
    };
    render_outcome(finished.await)
}

/// Handles `GET /connect/client.json`, which is the client metadata document of the gateway for authorization servers
/// that read such documents.
pub(crate) fn client(connect_pages: &ConnectPages) -> Response {
    let url = &connect_pages.parts.public_url;
    let document = serde_json::json!({
        "client_id": format!("{url}{CLIENT}"),
        "client_name": "Wardgate",
        "client_uri": url,
        "redirect_uris": [format!("{url}{CALLBACK}")],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    });
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (headers, document.to_string()).into_response()
}

/// Checks that a request is for a host of the gateway and that sign-in is configured.
fn ours<'a>(connect_pages: &'a ConnectPages, parts: &Parts) -> Result<&'a SignIn, ConnectProblem> {
    // The origin of the request is not checked, because each step requires a value that only the right browser has.
    let hosts = parts.headers.get_all(header::HOST).iter();
    let mut headers = HeaderMap::new();
    for host in hosts {
        headers.append(header::HOST, host.clone());
    }
    connect_pages
        .parts
        .origins
        .check(&parts.uri, &headers)
        .map_err(|_| ConnectProblem::Foreign)?;
    connect_pages.sign_in.as_ref().ok_or(ConnectProblem::Lapsed)
}

fn query(parts: &Parts) -> HashMap<String, String> {
    let query = parts.uri.query().unwrap_or_default();
    url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}

/// Checks that the request comes from the browser that was redirected, and that it is the first one.
async fn came_back(
    connect_pages: &ConnectPages,
    query: &HashMap<String, String>,
    state: &str,
) -> Result<(), ConnectProblem> {
    if !query
        .get("state")
        .is_some_and(|given| is_same_secret(given, state))
    {
        return Err(ConnectProblem::Lapsed);
    }
    let digest = Digest::compute(state.as_bytes());
    let (id, _) = digest.as_bytes().split_at(16);
    let id = id.try_into().map_err(|_| ConnectProblem::Lapsed)?;
    use_id_once(connect_pages, id, Purpose::ConnectVisit).await
}

/// Fails if the id was used before.
async fn use_id_once(
    connect_pages: &ConnectPages,
    id: [u8; 16],
    purpose: Purpose,
) -> Result<(), ConnectProblem> {
    let until = connect_pages.parts.ambient.now().plus(purpose.lasts());
    match connect_pages.parts.store.use_id_once(id, until).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(ConnectProblem::Used),
        Err(_) => Err(ConnectProblem::Unavailable),
    }
}

fn origin_of(url: &str) -> &str {
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let end = url[after_scheme..].find('/');
    end.map_or(url, |end| &url[..after_scheme + end])
}

fn with(connect_pages: &ConnectPages, consent: &ConsentFlow, mut response: Response) -> Response {
    match consent.cookie(&connect_pages.parts.sealer) {
        Some(cookie) => {
            response.headers_mut().append(header::SET_COOKIE, cookie);
            response
        }
        None => pages::problem(ConnectProblem::Unavailable),
    }
}

fn without_cookie(mut response: Response) -> Response {
    response
        .headers_mut()
        .append(header::SET_COOKIE, no_cookie());
    response
}

fn not_signed_in(error: &SignInError) -> ConnectProblem {
    warn!(%error, "a sign-in failed");
    match error {
        SignInError::Foreign | SignInError::Issuer(ConnectError::OtherIssuer) => {
            ConnectProblem::NotSignedIn
        }
        SignInError::Issuer(_) => ConnectProblem::Unavailable,
    }
}

fn render_outcome(outcome: Result<Response, ConnectProblem>) -> Response {
    outcome.unwrap_or_else(pages::problem)
}
