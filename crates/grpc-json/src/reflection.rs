//! A client of server reflection, in version `grpc.reflection.v1` or else the older `v1alpha`.
//!
//! The responses of a server are not trusted. The client requests one file at a time, requires exactly that file, and
//! enforces limits on files, bytes and time.

use std::collections::{BTreeMap, VecDeque};

use http::uri::PathAndQuery;
use prost::Message;
use prost_types::FileDescriptorProto;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use super::GrpcError;
use super::bad_descriptors::BadDescriptors;
use super::channel::GrpcChannel;
use super::descriptors::{self, MAX_BYTES, MAX_FILES};
use super::status;

/// The two versions of the reflection method, which use the same messages.
const VERSIONS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Returns the files that describe `service` and everything it uses.
pub(super) async fn files(
    connection: &GrpcChannel,
    metadata: &MetadataMap,
    service: &str,
) -> Result<Vec<FileDescriptorProto>, GrpcError> {
    for version in VERSIONS {
        let first = MessageRequest::FileContainingSymbol(service.to_owned());
        let path = PathAndQuery::from_static(version);
        let opened = ReflectionStream::open(connection, metadata, path, first).await;
        let (mut conversation, answer) = match opened {
            Err(status) if status.code() == Code::Unimplemented => continue,
            opened => opened.map_err(|status| reflection_error(&status))?,
        };
        let mut found = FoundFiles::default();
        found.add_files(answer).map_err(|problem| match problem {
            ReflectionProblem::NotFound => GrpcError::NoMethod(service.to_owned()),
            problem => problem.into(),
        })?;
        while let Some(missing) = found.missing.pop_front() {
            if found.files.contains_key(&missing) {
                continue;
            }
            let request = MessageRequest::FileByFilename(missing.clone());
            let answer = conversation
                .send_request(request)
                .await
                .map_err(|status| reflection_error(&status))?;
            found.add_files(answer)?;
            if !found.files.contains_key(&missing) {
                return Err(ReflectionProblem::AnotherFile.into());
            }
        }
        return Ok(found.files.into_values().collect());
    }
    Err(GrpcError::Undescribed(
        "it does not support reflection; set `descriptors` of the source".to_owned(),
    ))
}

fn reflection_error(status: &Status) -> GrpcError {
    match status::to_grpc_error(status) {
        GrpcError::Status { code, .. } => GrpcError::Undescribed(format!(
            "its reflection service responded with {}",
            wardgate_rpc::code_name(code)
        )),
        // Whatever the cause of this failure is, the call that needs the descriptors was not sent.
        GrpcError::Broken(cause) => GrpcError::Unreachable(cause),
        GrpcError::ServerTimeout => {
            GrpcError::Unreachable("its reflection stopped at its own time limit".to_owned())
        }
        GrpcError::TooLarge => BadDescriptors::TooMany("bytes", MAX_BYTES).into(),
        error => error,
    }
}

/// The reason why a reflection response cannot be used.
#[derive(Debug, thiserror::Error)]
enum ReflectionProblem {
    #[error("its reflection service does not have a file that one of its files imports")]
    NotFound,
    #[error("its reflection service returned another file than requested")]
    AnotherFile,
    #[error("its reflection service returned something other than files")]
    NoFiles,
    #[error("its reflection service returned bytes that are not a file")]
    NotAFile,
    #[error("its reflection service returned descriptors that cannot be used: {0}")]
    Bad(#[from] BadDescriptors),
}

impl From<ReflectionProblem> for GrpcError {
    fn from(problem: ReflectionProblem) -> Self {
        Self::Undescribed(problem.to_string())
    }
}

impl From<BadDescriptors> for GrpcError {
    fn from(bad: BadDescriptors) -> Self {
        ReflectionProblem::Bad(bad).into()
    }
}

/// A stream of reflection requests and their responses.
struct ReflectionStream {
    questions: mpsc::Sender<ServerReflectionRequest>,
    answers: Streaming<ServerReflectionResponse>,
}

impl ReflectionStream {
    /// Opens a stream with its first request, because many servers send nothing, not even headers, before they receive it.
    async fn open(
        connection: &GrpcChannel,
        metadata: &MetadataMap,
        path: PathAndQuery,
        first: MessageRequest,
    ) -> Result<(Self, ServerReflectionResponse), Status> {
        let (questions, asked) = mpsc::channel(1);
        // This cannot fail, because the channel is empty.
        let _ = questions.try_send(question(first));
        let mut request = Request::new(ReceiverStream::new(asked));
        *request.metadata_mut() = metadata.clone();
        let mut client = Grpc::new(connection.clone()).max_decoding_message_size(MAX_BYTES);
        client.ready().await.map_err(status::unready)?;
        let codec = ProstCodec::<ServerReflectionRequest, ServerReflectionResponse>::default();
        let answers = client.streaming(request, path, codec).await?.into_inner();
        let mut conversation = Self { questions, answers };
        let answer = conversation.answer().await?;
        Ok((conversation, answer))
    }

    async fn send_request(
        &mut self,
        request: MessageRequest,
    ) -> Result<ServerReflectionResponse, Status> {
        // If the stream has ended, reading the response fails.
        let _ = self.questions.send(question(request)).await;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<ServerReflectionResponse, Status> {
        let answer = self.answers.message().await?;
        answer.ok_or_else(|| Status::internal("the stream ended before the answer"))
    }
}

fn question(request: MessageRequest) -> ServerReflectionRequest {
    ServerReflectionRequest {
        host: String::new(),
        message_request: Some(request),
    }
}

/// The files that were received so far.
#[derive(Default)]
struct FoundFiles {
    files: BTreeMap<String, FileDescriptorProto>,
    bytes: usize,
    /// Imports that may still have to be requested.
    missing: VecDeque<String>,
}

impl FoundFiles {
    fn add_files(&mut self, answer: ServerReflectionResponse) -> Result<(), ReflectionProblem> {
        let files = match answer.message_response {
            Some(MessageResponse::FileDescriptorResponse(files)) => files.file_descriptor_proto,
            Some(MessageResponse::ErrorResponse(error))
                if error.error_code == Code::NotFound as i32 =>
            {
                return Err(ReflectionProblem::NotFound);
            }
            _ => return Err(ReflectionProblem::NoFiles),
        };
        for bytes in files {
            self.bytes += bytes.len();
            if self.bytes > MAX_BYTES {
                return Err(BadDescriptors::TooMany("bytes", MAX_BYTES).into());
            }
            let file = FileDescriptorProto::decode(bytes.as_slice())
                .map_err(|_| ReflectionProblem::NotAFile)?;
            descriptors::check_file_name(file.name())?;
            // Servers send an imported file along with each of its importers.
            if self.files.contains_key(file.name()) {
                continue;
            }
            if self.files.len() == MAX_FILES {
                return Err(BadDescriptors::TooMany("files", MAX_FILES).into());
            }
            for import in &file.dependency {
                descriptors::check_file_name(import)?;
                if !descriptors::is_well_known(import) {
                    self.missing.push_back(import.clone());
                }
            }
            self.files.insert(file.name().to_owned(), file);
        }
        Ok(())
    }
}
