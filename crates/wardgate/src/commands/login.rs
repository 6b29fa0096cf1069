//! `wardgate login`, `logout` and `contexts`: store sign-ins of a person, whose tokens other commands use.
//!
//! ```text
//!  login ─▶ the gateway's provider ─▶ browser, or a code typed elsewhere ─▶ contexts.json, for its owner alone
//!  tools call, bench, … ─▶ the current context ─▶ its token, renewed when it ends
//! ```

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::Html;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use url::form_urlencoded;
use wardgate_domain::{Ambient, Timestamp, mark_invisible};
use wardgate_egress::{CodeRequest, LoginClient, LoginServer, LoginTokens};

use crate::Failure;
use crate::cli::{ContextsArgs, ContextsCommand, LoginArgs, LogoutArgs};
use crate::commands::output::RowPrinter;
use crate::commands::terminal::cell;
use crate::data_dir;

/// Environment variable for a directory that replaces the user's configuration directory.
const DIRECTORY: &str = "WARDGATE_CONFIG_DIR";
/// Maximum time a person may take to sign in with the browser.
const PATIENCE: Duration = Duration::from_mins(5);
/// Remaining lifetime below which a token is renewed before use.
const MARGIN: Duration = Duration::from_secs(30);
/// Path of the redirect URI.
const CALLBACK: &str = "/callback";

/// All sign-ins of this user.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Contexts {
    current: Option<String>,
    contexts: BTreeMap<String, Context>,
}

/// One sign-in.
#[derive(Serialize, Deserialize)]
struct Context {
    url: Url,
    server: LoginServer,
    access_token: String,
    /// Expiry of the access token, in seconds since the Unix epoch.
    ends: i64,
    refresh_token: Option<String>,
}

impl std::fmt::Debug for Context {
    /// Formats the URL alone, because tokens must not be logged.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.url.as_str())
    }
}

impl Context {
    fn new(url: Url, server: LoginServer, tokens: LoginTokens, now: Timestamp) -> Self {
        Self {
            url,
            server,
            ends: now.plus(tokens.lifetime).as_seconds(),
            access_token: tokens.access_token,
            refresh_token: tokens.refresh_token,
        }
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        Timestamp::from_seconds(self.ends) > now.plus(MARGIN)
    }
}

/// Returns the user's configuration directory for this program.
fn directory() -> Result<PathBuf, Failure> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(own) = variable(DIRECTORY) {
        return Ok(own.into());
    }
    let base = match (variable("XDG_CONFIG_HOME"), variable("HOME")) {
        (Some(base), _) => PathBuf::from(base),
        (None, Some(home)) => PathBuf::from(home).join(".config"),
        (None, None) => {
            return Err(format!("the home directory is not known; set {DIRECTORY}").into());
        }
    };
    Ok(base.join("wardgate"))
}

impl Contexts {
    fn load() -> Result<Self, Failure> {
        let path = directory()?.join("contexts.json");
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|error| format!("{} cannot be read: {error}", path.display()).into()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{} cannot be read: {error}", path.display()).into()),
        }
    }

    /// Replaces the file atomically, readable by its owner alone, so that other commands never read a partial file.
    fn save(&self, ambient: &Ambient) -> Result<(), Failure> {
        let directory = directory()?;
        std::fs::create_dir_all(&directory)?;
        let text = serde_json::to_vec_pretty(self)?;
        data_dir::replace(&directory.join("contexts.json"), &text, ambient)?;
        Ok(())
    }
}

pub(crate) async fn login(arguments: LoginArgs) -> Result<(), Failure> {
    let ambient = Ambient::system();
    let mut url = arguments.url;
    if url.path() == "/" {
        url.set_path("/mcp");
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let redirect_uri = format!("http://{}{CALLBACK}", listener.local_addr()?);
    let (id, scope) = (arguments.client_id, arguments.scope);
    let client = LoginClient::discover(&url, id, scope, &redirect_uri, &ambient).await?;
    let tokens = if arguments.device {
        by_device(&client).await?
    } else {
        by_browser(
            &client,
            listener,
            &redirect_uri,
            arguments.no_browser,
            &ambient,
        )
        .await?
    };
    let mut contexts = Contexts::load()?;
    let name = arguments.context;
    let context = Context::new(url, client.server().clone(), tokens, ambient.now());
    println!(
        "signed in at {} as `{}`",
        context.url,
        mark_invisible(&name)
    );
    contexts.contexts.insert(name.clone(), context);
    contexts.current = Some(name);
    contexts.save(&ambient)
}

async fn by_device(client: &LoginClient) -> Result<LoginTokens, Failure> {
    let code = client.start_device().await?;
    let code = code.ok_or("the identity provider does not support device codes; omit --device")?;
    println!(
        "Open {} and enter {}",
        mark_invisible(&code.verification_uri),
        mark_invisible(&code.user_code)
    );
    if let Some(whole) = &code.verification_uri_complete {
        println!("or open {}", mark_invisible(whole));
    }
    Ok(client.poll_device(&code).await?)
}

async fn by_browser(
    client: &LoginClient,
    listener: TcpListener,
    redirect_uri: &str,
    no_browser: bool,
    ambient: &Ambient,
) -> Result<LoginTokens, Failure> {
    let (verifier, state) = (ambient.random_text(), ambient.random_text());
    let request = CodeRequest {
        redirect_uri,
        verifier: &verifier,
    };
    let url = client.authorization_url(request, &state);
    let url = url.ok_or("the identity provider supports no sign-in in a browser; use --device")?;
    println!("Sign in at {url}");
    if !no_browser {
        // If the browser cannot be started, the user opens the address by hand.
        let _ = std::process::Command::new("xdg-open")
            .arg(url.as_str())
            .spawn();
    }
    let returned = tokio::time::timeout(PATIENCE, wait_for_redirect(listener, &state)).await;
    let returned = returned.map_err(|_| "the sign-in was not completed within five minutes")??;
    if let Some(error) = returned.get("error") {
        return Err(format!(
            "the identity provider returned the error `{}`",
            mark_invisible(error)
        )
        .into());
    }
    let code = returned
        .get("code")
        .ok_or("the identity provider returned no authorization code")?;
    let issuer = returned.get("iss").map(String::as_str);
    Ok(client.redeem(request, code, issuer).await?)
}

/// Waits for the redirect with the given `state` and returns its query parameters. Requests with another `state` are
/// ignored.
async fn wait_for_redirect(
    listener: TcpListener,
    state: &str,
) -> Result<HashMap<String, String>, Failure> {
    type Visits = mpsc::Sender<HashMap<String, String>>;
    async fn receive_redirect(
        State(visits): State<Visits>,
        RawQuery(query): RawQuery,
    ) -> Html<&'static str> {
        let query = query.unwrap_or_default();
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
        let _ = visits.send(pairs.collect()).await;
        Html("<!doctype html><title>Wardgate</title><p>Done. You may close this window.")
    }
    let (visits, mut came) = mpsc::channel(1);
    let router = Router::new().fallback(receive_redirect).with_state(visits);
    let (done, is_done) = oneshot::channel::<()>();
    // A graceful shutdown, so that the response page is still sent.
    let serving = axum::serve(listener, router).with_graceful_shutdown(async {
        let _ = is_done.await;
    });
    let waiting = async {
        let _done = done;
        while let Some(query) = came.recv().await {
            if query.get("state").is_some_and(|it| it == state) {
                return Ok(query);
            }
        }
        Err("the browser did not return from the sign-in".into())
    };
    let (served, query) = tokio::join!(serving.into_future(), waiting);
    served?;
    query
}

pub(crate) fn logout(arguments: LogoutArgs) -> Result<(), Failure> {
    let mut contexts = Contexts::load()?;
    let name = arguments.context.or_else(|| contexts.current.clone());
    let name = name.ok_or("no context is signed in")?;
    let gone = contexts.contexts.remove(&name);
    gone.ok_or_else(|| format!("the context `{}` does not exist", mark_invisible(&name)))?;
    if contexts.current.as_ref() == Some(&name) {
        contexts.current = None;
    }
    contexts.save(&Ambient::system())?;
    println!("signed out of `{}`", mark_invisible(&name));
    Ok(())
}

pub(crate) fn contexts(arguments: ContextsArgs) -> Result<(), Failure> {
    let mut contexts = Contexts::load()?;
    match arguments.command {
        ContextsCommand::List { output } => {
            let mut rows = RowPrinter::stdout(output.format(), None)?;
            for (name, context) in &contexts.contexts {
                let is_current = contexts.current.as_ref() == Some(name);
                let url = context.url.as_str();
                let line = serde_json::json!({
                    "name": name, "url": url, "issuer": context.server.issuer, "current": is_current,
                });
                rows.print(&line.to_string(), || {
                    let mark = if is_current { "*" } else { " " };
                    format!("{mark} {:<20} {url}", cell(name))
                })?;
            }
            rows.finish()
        }
        ContextsCommand::Use { name } => {
            if !contexts.contexts.contains_key(&name) {
                return Err(
                    format!("the context `{}` does not exist", mark_invisible(&name)).into(),
                );
            }
            contexts.current = Some(name);
            contexts.save(&Ambient::system())
        }
    }
}

/// Returns the URL of the gateway and the token of a sign-in, or `None` if nobody is signed in. A token that is about to
/// expire is renewed.
pub(crate) async fn signed_in(context: Option<&str>) -> Result<Option<(Url, String)>, Failure> {
    let ambient = Ambient::system();
    let mut contexts = Contexts::load()?;
    let Some(name) = context
        .map(ToOwned::to_owned)
        .or_else(|| contexts.current.clone())
    else {
        return Ok(None);
    };
    let shown = mark_invisible(&name).into_owned();
    let known = contexts.contexts.get_mut(&name);
    let known = known.ok_or_else(|| format!("the context `{shown}` does not exist"))?;
    if !known.is_fresh(ambient.now()) {
        let again = format!(
            "sign in again: wardgate login --context {shown} --url {}",
            known.url
        );
        let refresh = known.refresh_token.clone();
        let refresh =
            refresh.ok_or_else(|| format!("the token of `{shown}` has expired; {again}"))?;
        let client = LoginClient::with_server(known.server.clone(), &ambient)?;
        let now = ambient.now();
        let tokens = client.refresh(&refresh).await;
        let tokens = tokens.map_err(|error| format!("{error}; {again}"))?;
        *known = Context::new(known.url.clone(), known.server.clone(), tokens, now);
        let found = (known.url.clone(), known.access_token.clone());
        contexts.save(&ambient)?;
        return Ok(Some(found));
    }
    Ok(Some((known.url.clone(), known.access_token.clone())))
}
