//! Submission of checkpoints to witnesses. A checkpoint is stored as cosigned once it has the cosignatures of a quorum.
//!
//! ```text
//!   publisher ──newest checkpoint──▶ CheckpointSubmitter ──add-checkpoint──▶ every witness with a URL
//!                                        ▲   │                                   │ 409: the tree size it saw last
//!                                        │   └──quorum──▶ store            ◀─────┘ 200: its cosignature
//!                                        └── retry later if the quorum is not reached
//! ```
//!
//! Appends and checkpoints never wait for witnesses. If a witness does not respond, only the newest cosigned checkpoint grows
//! old.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::{Method, StatusCode};
use metrics::{counter, gauge};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use url::Url;
use wardgate_domain::Ambient;
use wardgate_egress::{Egress, EgressError, EgressRequest, EgressSettings, PrivateAddresses};
use wardgate_telemetry::names;
use wardgate_transparency::{
    Checkpoint, CheckpointSubmission, NoteSignature, SignedNote, TreeHead, TrustPolicy, VerifierKey,
};

use crate::Error;
use crate::config::WitnessSettings;
use crate::proof::prove_consistency;
use crate::publisher::set_time;
use crate::store::StoreReader;
use crate::writer::AppendQueue;

/// Timeout of one request to a witness.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Maximum size in bytes of the response of a witness, which is a few signature lines.
const ANSWER_BYTES: usize = 16 * 1_024;

/// Maximum number of requests of one submission. A witness that saw another size returns that size, which can change again if
/// several processes submit checkpoints.
const MAX_REQUESTS: u32 = 3;

/// Pause after the first failure of a witness. The pause doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Maximum pause after a failure of a witness.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Interval between updates of the time of the newest cosigned checkpoint while there is no newer checkpoint.
const IDLE: Duration = Duration::from_secs(5);

/// The reason why a witness did not cosign a checkpoint.
#[derive(Debug, thiserror::Error)]
enum SubmissionError {
    #[error("it cannot be reached: {0}")]
    Unreachable(#[from] EgressError),
    #[error("it answered {0}: {1}")]
    Refused(StatusCode, String),
    #[error("its answer is not a cosignature: {0}")]
    Cosignature(#[from] wardgate_transparency::Error),
    #[error(
        "it has seen {seen} records of this log, which has {size}: the store was restored from an older backup, or another log signs with \
         the same key"
    )]
    SeenMore { seen: u64, size: u64 },
    #[error("it has seen a different tree of {0} records of this log")]
    SeenOther(u64),
    #[error("it returns a different size with each answer")]
    Unsettled,
    #[error("the consistency proof for it cannot be created: {0}")]
    Proof(#[source] Box<Error>),
}

/// Submits checkpoints to the witnesses of a policy.
pub(crate) struct CheckpointSubmitter {
    reader: StoreReader,
    appends: AppendQueue,
    policy: TrustPolicy,
    witnesses: Vec<WitnessClient>,
    ambient: Ambient,
}

/// A checkpoint that is submitted to the witnesses.
struct PendingCheckpoint {
    note: SignedNote,
    head: TreeHead,
    /// The cosignatures, by the name of the witness.
    cosignatures: BTreeMap<String, NoteSignature>,
    /// Whether the checkpoint has the quorum, and is stored unless the quorum requires no cosignatures.
    is_stored: bool,
}

impl CheckpointSubmitter {
    /// Creates the submitter for the log that signs with `key`. It does not connect to a witness yet.
    pub(crate) fn open(
        settings: &WitnessSettings,
        key: &VerifierKey,
        reader: StoreReader,
        appends: AppendQueue,
        ambient: Ambient,
    ) -> Result<Self, Error> {
        let policy = settings.read_policy()?.for_log(key.clone());
        let policy = policy.map_err(|error| settings.unfit(&error))?;
        let private = PrivateAddresses::from(settings.private_addresses);
        for witness in policy.unknown_witnesses() {
            tracing::warn!(
                witness,
                "the type of the key of the witness is not supported: the witness is not used, and does not count towards a quorum"
            );
        }
        let mut witnesses = Vec::new();
        for witness in policy.witnesses() {
            let Some(url) = &witness.url else {
                continue;
            };
            let url = format!("{}/add-checkpoint", url.trim_end_matches('/'));
            let url = Url::parse(&url).map_err(|error| settings.unfit(&error))?;
            let client = WitnessClient::open(&witness.name, &witness.key, url, &private);
            witnesses.push(client.map_err(|error| settings.unfit(&error))?);
        }
        gauge!(names::AUDIT_COSIGNED_TIME).set(0.0);
        Ok(Self {
            reader,
            appends,
            policy,
            witnesses,
            ambient,
        })
    }

    /// Submits the published checkpoints until the publisher is gone.
    pub(crate) async fn run(mut self, mut published: watch::Receiver<Option<SignedNote>>) {
        let mut pending: Option<PendingCheckpoint> = None;
        loop {
            let newest = published.borrow_and_update().clone();
            if let Some(note) = newest
                && pending.as_ref().is_none_or(|pending| pending.note != note)
            {
                pending = PendingCheckpoint::new(note);
            }
            if let Some(pending) = &mut pending {
                self.submit(pending).await;
            }
            let due = self.next_look(pending.as_ref());
            match timeout_at(due, published.changed()).await {
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(_)) => {
                    // The last checkpoint may have been published since it was read.
                    if published.borrow().as_ref() == pending.as_ref().map(|it| &it.note) {
                        return;
                    }
                }
            }
        }
    }

    /// Returns the time of the next request to a witness that has not cosigned `pending`, at most [`IDLE`] from now.
    fn next_look(&self, pending: Option<&PendingCheckpoint>) -> Instant {
        let idle = Instant::now() + IDLE;
        let Some(pending) = pending else {
            return idle;
        };
        let missing = self.witnesses.iter();
        let missing = missing.filter(|witness| !pending.is_cosigned_by(witness));
        let due = missing.map(|witness| witness.due).min();
        due.map_or(idle, |due| due.min(idle))
    }

    /// Sends `pending` to every witness that has not cosigned it yet. Stores the checkpoint when the quorum is reached, and
    /// again with each further cosignature.
    async fn submit(&mut self, pending: &mut PendingCheckpoint) {
        let now = Instant::now();
        let (note, head) = (pending.note.clone(), pending.head);
        let reader = &self.reader;
        let mut submissions: FuturesUnordered<_> = self
            .witnesses
            .iter_mut()
            .filter(|witness| witness.due <= now && !pending.is_cosigned_by(witness))
            .map(|witness| witness.submit(&note, head, reader))
            .collect();
        while let Some(cosigned) = submissions.next().await {
            let Some((witness, cosignature)) = cosigned else {
                continue;
            };
            pending.cosignatures.insert(witness, cosignature);
            pending.store(&self.policy, &self.appends).await;
        }
        drop(submissions);
        if !pending.is_stored {
            pending.store(&self.policy, &self.appends).await;
        }
        if pending.is_stored {
            set_time(names::AUDIT_COSIGNED_TIME, &self.ambient);
        }
    }
}

impl PendingCheckpoint {
    /// Creates the pending checkpoint of a note of the publisher, or returns `None` if the note is not a checkpoint.
    fn new(note: SignedNote) -> Option<Self> {
        let checkpoint: Checkpoint = note.text().parse().ok()?;
        Some(Self {
            note,
            head: checkpoint.head,
            cosignatures: BTreeMap::new(),
            is_stored: false,
        })
    }

    fn is_cosigned_by(&self, witness: &WitnessClient) -> bool {
        self.cosignatures.contains_key(&witness.name)
    }

    /// Stores the checkpoint if it has the cosignatures of the quorum. If the quorum requires no cosignatures, the signed
    /// checkpoint is sufficient.
    async fn store(&mut self, policy: &TrustPolicy, appends: &AppendQueue) {
        let cosigned = self.cosigned_note();
        if policy.verify_quorum(&cosigned).is_err() {
            return;
        }
        if self.cosignatures.is_empty() {
            self.is_stored = true;
            return;
        }
        let stored = appends.publish_cosigned(self.head.size, cosigned.to_string());
        match stored.await {
            Ok(()) => self.is_stored = true,
            Err(error) => tracing::warn!(%error, "a cosigned checkpoint cannot be stored now"),
        }
    }

    fn cosigned_note(&self) -> SignedNote {
        let mut note = self.note.clone();
        for cosignature in self.cosignatures.values() {
            note.add(cosignature.clone());
        }
        note
    }
}

/// A witness that is reached by HTTP (tlog-witness).
struct WitnessClient {
    name: String,
    key: VerifierKey,
    url: Url,
    egress: Egress,
    /// The size of the tree that the witness saw last, as far as is known.
    seen: u64,
    /// The earliest time of the next request.
    due: Instant,
    /// The pause after the next failure.
    pause: Duration,
}

impl WitnessClient {
    fn open(
        name: &str,
        key: &VerifierKey,
        url: Url,
        private: &PrivateAddresses,
    ) -> Result<Self, EgressError> {
        let settings =
            EgressSettings::for_url(&url, [], private.clone(), ANSWER_LIMIT, ANSWER_BYTES);
        Ok(Self {
            name: name.to_owned(),
            key: key.clone(),
            egress: Egress::open(settings)?,
            url,
            seen: 0,
            due: Instant::now(),
            pause: FIRST_PAUSE,
        })
    }

    /// Submits the checkpoint `note` of the tree `head`. Returns the name of the witness and its cosignature, or `None` after a
    /// failure, which is logged and counted.
    async fn submit(
        &mut self,
        note: &SignedNote,
        head: TreeHead,
        reader: &StoreReader,
    ) -> Option<(String, NoteSignature)> {
        match self.try_submit(note, head, reader).await {
            Ok(cosignature) => {
                if self.pause > FIRST_PAUSE {
                    tracing::info!(witness = self.name, "the witness cosigns again");
                }
                self.seen = head.size;
                self.pause = FIRST_PAUSE;
                Some((self.name.clone(), cosignature))
            }
            Err(error) => {
                let witness = &self.name;
                counter!(names::AUDIT_WITNESS_FAILURES, "witness" => witness.clone()).increment(1);
                let error = &error as &dyn std::error::Error;
                tracing::warn!(witness, error, "a checkpoint was not cosigned");
                self.due = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                None
            }
        }
    }

    async fn try_submit(
        &mut self,
        note: &SignedNote,
        head: TreeHead,
        reader: &StoreReader,
    ) -> Result<NoteSignature, SubmissionError> {
        for _ in 0..MAX_REQUESTS {
            if self.seen > head.size {
                let seen = std::mem::take(&mut self.seen);
                return Err(SubmissionError::SeenMore {
                    seen,
                    size: head.size,
                });
            }
            let path = prove_consistency(reader, self.seen, head.size).await;
            let submission = CheckpointSubmission {
                old_size: self.seen,
                path: path.map_err(|error| SubmissionError::Proof(Box::new(error)))?,
                checkpoint: note.clone(),
            };
            let request = EgressRequest::new(Method::POST, self.url.clone())
                .body("text/plain; charset=utf-8", submission.to_string());
            let response = self.egress.send(request).await?;
            let status = response.status;
            let body = response.body.bytes().await?;
            let body = String::from_utf8_lossy(&body);
            match status {
                StatusCode::OK => {
                    let cosigned: SignedNote = format!("{note}{body}").parse()?;
                    return Ok(self.key.find_signature(&cosigned)?.clone());
                }
                StatusCode::CONFLICT => match body.trim_end().parse() {
                    Ok(seen) if seen == self.seen => return Err(SubmissionError::SeenOther(seen)),
                    Ok(seen) => self.seen = seen,
                    Err(_) => return Err(refusal_error(status, &body)),
                },
                // The consistency proof does not begin with the tree that the witness saw (tlog-witness). Some
                // witnesses answer this to another tree of the same size, too.
                StatusCode::UNPROCESSABLE_ENTITY => {
                    return Err(SubmissionError::SeenOther(self.seen));
                }
                _ => return Err(refusal_error(status, &body)),
            }
        }
        Err(SubmissionError::Unsettled)
    }
}

/// Creates the error of a refused submission, with the first characters of the response.
fn refusal_error(status: StatusCode, body: &str) -> SubmissionError {
    let said: String = body.chars().filter(|c| !c.is_control()).take(200).collect();
    SubmissionError::Refused(status, said)
}
