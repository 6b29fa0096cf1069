//! Sends batches of events to a server over HTTP through guarded egress.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use ::http::{HeaderMap, Method};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use url::Url;
use wardgate_domain::{Ambient, Digest, is_loopback_host};
use wardgate_egress::{
    Egress, EgressRequest, EgressSettings, InvalidProxy, NetworkSettings, PrivateAddresses,
    ResponseBody, TlsSettings, retry_after,
};
use wardgate_telemetry::{SecretKind, record_secret_file};

use super::{SEND_LIMIT, SendError, read_file, unfit};
use crate::Error;
use crate::event::ExportEvent;
use crate::settings::{EventFormat, HttpSettings};

/// Maximum number of bytes that are read of a response.
const ANSWER_BYTES: usize = 64 * 1_024;

/// Longest pause that a server can ask for.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// Prefix of a webhook's secret (Standard Webhooks, "Signature scheme").
const SECRET_PREFIX: &str = "whsec_";

/// A server and the credentials for it.
#[derive(Debug)]
pub(crate) struct HttpTarget {
    /// The name of the export, from which the id of each batch is derived.
    name: String,
    pub(super) url: Url,
    egress: Egress,
    token_file: Option<PathBuf>,
    signing_key_file: Option<PathBuf>,
}

impl HttpTarget {
    pub(super) fn open(export: &str, settings: &HttpSettings) -> Result<Self, Error> {
        let url = parse_url(export, &settings.url)?;
        let pem = |file: &Option<PathBuf>| {
            let text = file.as_ref().map(|file| read_file(export, file));
            text.transpose()
        };
        if settings.cert_file.is_some() != settings.key_file.is_some() {
            return Err(Error::HalfIdentity(export.to_owned()));
        }
        let (ca, cert) = (pem(&settings.ca_file)?, pem(&settings.cert_file)?);
        let tls = TlsSettings::from_pem(ca, cert, pem(&settings.key_file)?);
        let tls = tls.map_err(|invalid| {
            let file = match invalid.field {
                "ca" => &settings.ca_file,
                "cert" => &settings.cert_file,
                _ => &settings.key_file,
            };
            let path = file.as_deref().unwrap_or(Path::new(""));
            unfit(export, path, &invalid.problem)
        })?;
        let proxy = settings.proxy.as_deref();
        let network = NetworkSettings::new(tls, proxy).map_err(|invalid| match invalid {
            InvalidProxy::Url => no_url(export, proxy.unwrap_or_default()),
            InvalidProxy::ReceivesIdentity => Error::ProxyIdentity(export.to_owned()),
        })?;
        let private = PrivateAddresses::from(settings.private_addresses);
        let egress = EgressSettings {
            network,
            ..EgressSettings::for_url(&url, [], private, SEND_LIMIT, ANSWER_BYTES)
        };
        let egress = Egress::open(egress).map_err(|source| Error::Client {
            export: export.to_owned(),
            source,
        })?;
        if let Some(file) = &settings.token_file {
            bearer(&read_file(export, file)?).map_err(|problem| unfit(export, file, &problem))?;
        }
        if let Some(file) = &settings.signing_key_file {
            signing_key(&read_file(export, file)?)
                .map_err(|problem| unfit(export, file, &problem))?;
        }
        Ok(Self {
            name: export.to_owned(),
            url,
            egress,
            token_file: settings.token_file.clone(),
            signing_key_file: settings.signing_key_file.clone(),
        })
    }

    /// Sends events, one per line.
    pub(super) async fn send_lines(
        &self,
        events: &[ExportEvent],
        format: EventFormat,
        ambient: &Ambient,
    ) -> Result<(), SendError> {
        let lines = events.iter().flat_map(|event| [event.text.as_str(), "\n"]);
        let content_type = match format {
            EventFormat::Ocsf => "application/x-ndjson",
            EventFormat::Cef => "text/plain; charset=utf-8",
        };
        let body = lines.collect::<String>().into_bytes();
        self.post(content_type, body, events, ambient)
            .await
            .map(drop)
    }

    /// Sends a batch. Returns the body of the successful response, which has not been read yet.
    pub(super) async fn post(
        &self,
        content_type: &'static str,
        body: Vec<u8>,
        events: &[ExportEvent],
        ambient: &Ambient,
    ) -> Result<ResponseBody, SendError> {
        let mut request = EgressRequest::new(Method::POST, self.url.clone());
        if let Some(file) = &self.token_file {
            let authorization = bearer(&reread(file).await?).map_err(SendError::File)?;
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(file) = &self.signing_key_file {
            let key = signing_key(&reread(file).await?).map_err(SendError::File)?;
            // The id is the same for each attempt, so that a receiver can recognize a batch that it already has.
            let ends = [events.first(), events.last()];
            let [first, last] = ends.map(|event| event.map_or("", |event| &event.uid));
            let id = Digest::of_texts(&[&self.name, first, last]).to_string();
            for (name, value) in sign(&key, &id, ambient.now().as_seconds(), &body) {
                request = request.header(name, value);
            }
        }
        let answer = self.egress.send(request.body(content_type, body)).await?;
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        Err(SendError::Refused {
            status: answer.status.as_u16(),
            wait: wait(&answer.headers),
        })
    }
}

async fn reread(file: &PathBuf) -> Result<String, SendError> {
    let text = tokio::fs::read_to_string(file).await;
    let text = text.map_err(|error| SendError::File(format!("{}: {error}", file.display())))?;
    record_secret_file(SecretKind::Credential, file);
    Ok(text)
}

/// Returns the headers of Standard Webhooks 1.0 (standardwebhooks.com): an HMAC-SHA-256 of id, time and body.
fn sign(key: &hmac::Key, id: &str, seconds: i64, body: &[u8]) -> Vec<(HeaderName, HeaderValue)> {
    let time = seconds.to_string();
    let mut context = hmac::Context::with_key(key);
    for part in [id.as_bytes(), b".", time.as_bytes(), b".", body] {
        context.update(part);
    }
    let signature = format!("v1,{}", STANDARD.encode(context.sign()));
    let headers = [
        ("webhook-id", id),
        ("webhook-timestamp", &time),
        ("webhook-signature", &signature),
    ];
    let headers = headers.into_iter().filter_map(|(name, value)| {
        let value = HeaderValue::from_str(value).ok()?;
        Some((HeaderName::from_static(name), value))
    });
    headers.collect()
}

fn signing_key(text: &str) -> Result<hmac::Key, String> {
    let encoded = text.trim().strip_prefix(SECRET_PREFIX);
    let key = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
    let key = key.filter(|key| (24..=64).contains(&key.len()));
    let key = key.ok_or_else(|| {
        format!("contains no secret of 24 to 64 bytes: `{SECRET_PREFIX}` and Base64")
    })?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &key))
}

fn bearer(text: &str) -> Result<HeaderValue, String> {
    let token = text.trim();
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let value = value.ok().filter(|_| !token.is_empty());
    let mut value = value.ok_or("contains no token")?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the pause that the server asks for, up to [`LONGEST_WAIT`].
fn wait(headers: &HeaderMap) -> Duration {
    retry_after(headers).unwrap_or_default().min(LONGEST_WAIT)
}

/// Parses a URL and checks that it uses https, or http for this machine.
pub(super) fn parse_url(export: &str, text: &str) -> Result<Url, Error> {
    let refused = || no_url(export, text);
    let url = Url::parse(text).map_err(|_| refused())?;
    let is_here = url.host_str().is_some_and(is_loopback_host);
    let is_fit = url.scheme() == "https" || (url.scheme() == "http" && is_here);
    let is_anonymous = url.username().is_empty() && url.password().is_none();
    if is_fit && is_anonymous {
        Ok(url)
    } else {
        Err(refused())
    }
}

fn no_url(export: &str, text: &str) -> Error {
    // The text before an @ may contain a password.
    let url = text.rsplit('@').next().unwrap_or_default();
    Error::Url {
        export: export.to_owned(),
        url: url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use ::http::header::RETRY_AFTER;

    use super::*;

    #[test]
    fn a_batch_is_signed_as_standard_webhooks_has_it() {
        // The example is from the specification's libraries.
        let key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let headers = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        let signature = headers.last().unwrap();
        assert_eq!(signature.0, "webhook-signature");
        assert_eq!(
            signature.1,
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
        for wrong in [
            "",
            "whsec_",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_c2hvcnQ=",
        ] {
            assert!(signing_key(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn certificates_are_read_as_such_and_shown_to_no_proxy() {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["siem.example".to_owned()]).unwrap();
        let name = format!("wardgate-webhook-{}", std::process::id());
        let [cert_file, key_file] = ["pem", "key"]
            .map(|extension| std::env::temp_dir().join(format!("{name}.{extension}")));
        std::fs::write(&cert_file, cert.pem()).unwrap();
        std::fs::write(&key_file, signing_key.serialize_pem()).unwrap();
        let open = |ca: &Path, proxy: &str| {
            let settings = serde_json::json!({
                "url": "https://siem.example/in",
                "ca_file": ca,
                "cert_file": cert_file,
                "key_file": key_file,
                "proxy": proxy,
            });
            let settings = serde_json::from_value(settings).unwrap();
            let target = HttpTarget::open("soc", &settings);
            target.map_or_else(|error| error.to_string(), |_| String::new())
        };
        assert_eq!(open(&cert_file, "http://proxy.example:3128"), "");
        let shown = open(&cert_file, "https://proxy.example");
        assert!(shown.contains("would receive the certificate"), "{shown}");
        let other = open(&cert_file, "socks5://proxy.example");
        assert!(other.contains("not a supported URL"), "{other}");
        let no_ca = open(&key_file, "http://proxy.example:3128");
        assert!(no_ca.contains("contains no PEM certificate"), "{no_ca}");
        for file in [&cert_file, &key_file] {
            std::fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn a_server_is_left_alone_as_long_as_it_asks_and_not_for_ever() {
        let asked = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            wait(&HeaderMap::from_iter([(RETRY_AFTER, value)]))
        };
        assert_eq!(asked("7"), Duration::from_secs(7));
        assert_eq!(asked("86400"), LONGEST_WAIT);
        assert_eq!(asked("Wed, 21 Oct 2026 07:28:00 GMT"), Duration::ZERO);
        assert_eq!(wait(&HeaderMap::new()), Duration::ZERO);
    }
}
