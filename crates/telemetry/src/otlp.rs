//! The exporter of traces to a collector: OTLP over gRPC or HTTP, with or without TLS.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Maximum time for the export of a batch.
const LIMIT: Duration = Duration::from_secs(10);
/// Path for traces over HTTP, relative to the endpoint (OTLP specification 1.7, "OTLP/HTTP Request").
const TRACES: &str = "/v1/traces";

/// The protocol of a collector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// Protobuf over gRPC.
    #[default]
    Grpc,
    /// Protobuf over HTTP.
    Http,
}

/// An error of the collector's settings.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The endpoint is not an http(s) URL.
    #[error(
        "telemetry.otlp_endpoint: `{0}` is not a URL; write http://host:port or https://host:port"
    )]
    Endpoint(String),
    /// A certificate or key file cannot be used.
    #[error("telemetry.{key}: cannot use {}: {reason}", path.display())]
    File {
        /// The key of the setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// There is a certificate without its key, or a key without its certificate.
    #[error("telemetry: set both otlp_cert_file and otlp_key_file, or neither")]
    HalfIdentity,
    /// The HTTP client cannot be created.
    #[error("telemetry.otlp_endpoint: {0}")]
    Client(#[from] reqwest::Error),
    /// The exporter cannot be created.
    #[error("telemetry.otlp_endpoint cannot be used: {0}")]
    Exporter(#[from] ExporterBuildError),
}

/// The settings of a collector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collector<'c> {
    pub(crate) endpoint: &'c str,
    pub(crate) protocol: OtlpProtocol,
    pub(crate) ca: Option<&'c Path>,
    pub(crate) cert: Option<&'c Path>,
    pub(crate) key: Option<&'c Path>,
}

impl Collector<'_> {
    /// Creates the exporter. Additional headers, such as a vendor's API key, come from `OTEL_EXPORTER_OTLP_HEADERS`.
    pub(crate) fn exporter(self) -> Result<SpanExporter, OtlpError> {
        let no_url = || OtlpError::Endpoint(self.endpoint.to_owned());
        let uri: Uri = self.endpoint.parse().map_err(|_| no_url())?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(no_url()),
        };
        match self.protocol {
            OtlpProtocol::Grpc => self.over_grpc(is_https),
            OtlpProtocol::Http => self.over_http(&uri),
        }
    }

    fn over_grpc(self, is_https: bool) -> Result<SpanExporter, OtlpError> {
        let mut builder = SpanExporter::builder()
            .with_tonic()
            .with_timeout(LIMIT)
            .with_endpoint(self.endpoint);
        if is_https {
            let mut tls = ClientTlsConfig::new();
            tls = match self.ca {
                Some(path) => {
                    tls.ca_certificate(Certificate::from_pem(read_file("otlp_ca_file", path)?))
                }
                None => tls.with_native_roots(),
            };
            if let Some([cert, key]) = self.identity()? {
                tls = tls.identity(Identity::from_pem(cert, key));
            }
            builder = builder.with_tls_config(tls);
        }
        Ok(builder.build()?)
    }

    fn over_http(self, uri: &Uri) -> Result<SpanExporter, OtlpError> {
        let mut client = reqwest::Client::builder().timeout(LIMIT);
        if let Some(path) = self.ca {
            let text = read_file("otlp_ca_file", path)?;
            let unfit = |error: reqwest::Error| unusable("otlp_ca_file", path, error.to_string());
            let authorities = reqwest::Certificate::from_pem_bundle(&text).map_err(unfit)?;
            client = client.tls_certs_only(authorities);
        }
        if let Some([cert, key]) = self.identity()? {
            let unfit = |error: reqwest::Error| {
                unusable(
                    "otlp_cert_file",
                    self.cert.unwrap_or(Path::new("")),
                    error.to_string(),
                )
            };
            let pem = [cert, key].concat();
            client = client.identity(reqwest::Identity::from_pem(&pem).map_err(unfit)?);
        }
        let client = RuntimeClient {
            client: client.build()?,
            runtime: Handle::current(),
        };
        let endpoint = match uri.path() {
            "" | "/" => format!("{}{TRACES}", self.endpoint.trim_end_matches('/')),
            _ => self.endpoint.to_owned(),
        };
        Ok(SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(LIMIT)
            .with_endpoint(endpoint)
            .build()?)
    }

    fn identity(self) -> Result<Option<[Vec<u8>; 2]>, OtlpError> {
        match (self.cert, self.key) {
            (Some(cert), Some(key)) => Ok(Some([
                read_file("otlp_cert_file", cert)?,
                read_file("otlp_key_file", key)?,
            ])),
            (None, None) => Ok(None),
            _ => Err(OtlpError::HalfIdentity),
        }
    }
}

fn read_file(key: &'static str, path: &Path) -> Result<Vec<u8>, OtlpError> {
    std::fs::read(path).map_err(|error| unusable(key, path, error.to_string()))
}

fn unusable(key: &'static str, path: &Path, reason: String) -> OtlpError {
    OtlpError::File {
        key,
        path: path.to_owned(),
        reason,
    }
}

/// An HTTP client that runs in the async runtime. Batches are exported by a separate thread outside of it, but the
/// client needs the runtime.
struct RuntimeClient {
    client: reqwest::Client,
    runtime: Handle,
}

impl fmt::Debug for RuntimeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuntimeClient")
    }
}

#[async_trait::async_trait]
impl HttpClient for RuntimeClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let request = request.try_into()?;
        let sending = async move {
            let answer = client.execute(request).await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            let mut response = Response::new(answer.bytes().await?);
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            Ok::<_, reqwest::Error>(response)
        };
        Ok(self.runtime.spawn(sending).await??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe_exporter(collector: Collector<'_>) -> String {
        let exporter = collector.exporter();
        exporter.map_or_else(|error| error.to_string(), |_| "good".to_owned())
    }

    #[tokio::test]
    async fn every_kind_of_endpoint_can_be_used() {
        for protocol in [OtlpProtocol::Grpc, OtlpProtocol::Http] {
            for endpoint in ["http://127.0.0.1:4317", "https://collector.example:4317"] {
                let collector = Collector {
                    endpoint,
                    protocol,
                    ca: None,
                    cert: None,
                    key: None,
                };
                assert_eq!(
                    describe_exporter(collector),
                    "good",
                    "{endpoint} {protocol:?}"
                );
                let half = Collector {
                    cert: Some(Path::new("cert.pem")),
                    endpoint: "https://collector.example",
                    ..collector
                };
                assert!(describe_exporter(half).contains("otlp_key_file"));
                let lost = Collector {
                    ca: Some(Path::new("/nowhere.pem")),
                    endpoint: "https://collector.example",
                    ..collector
                };
                assert!(describe_exporter(lost).contains("telemetry.otlp_ca_file"));
                let other = Collector {
                    endpoint: "collector:4317",
                    ..collector
                };
                assert!(describe_exporter(other).contains("is not a URL"));
            }
        }
    }
}
