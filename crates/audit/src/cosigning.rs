//! Witnesses: each new checkpoint is submitted to them, and stored once the quorum cosigned it.
//!
//! ```text
//!   publisher ──newest checkpoint──▶ CheckpointSubmitter ──add-checkpoint──▶ every witness with a URL
//!                                        ▲   │                                   │ 409: the size that it saw last
//!                                        │   └──quorum──▶ store            ◀─────┘ 200: its cosignature
//!                                        └── once more, later, where it is not reached
//! ```
//!
//! Appends and checkpoints wait for none of it: a witness that does not answer makes cosigned checkpoints old, and nothing
//! else.

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

/// How long one request to a witness may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Most bytes of an answer: a few signature lines.
const ANSWER_BYTES: usize = 16 * 1_024;

/// Requests of one submission: a witness that saw another size names it, and that can change once more where several
/// processes submit.
const MAX_REQUESTS: u32 = 3;

/// How long a witness is left alone after its first failure; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest that it is left alone.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How often it is told that the newest checkpoint is a cosigned one, while there is no newer.
const IDLE: Duration = Duration::from_secs(5);

/// Why a witness did not cosign.
#[derive(Debug, thiserror::Error)]
enum SubmissionError {
    #[error("it cannot be reached: {0}")]
    Unreachable(#[from] EgressError),
    #[error("it answered {0}: {1}")]
    Refused(StatusCode, String),
    #[error("its answer is no cosignature: {0}")]
    Cosignature(#[from] wardgate_transparency::Error),
    #[error(
        "it saw {seen} records of this log, which has {size}: the store was restored from an older backup, or another log signs with its key"
    )]
    SeenMore { seen: u64, size: u64 },
    #[error("it saw another tree of {0} records of this log")]
    SeenOther(u64),
    #[error("it names another size with each answer")]
    Unsettled,
    #[error("the proof for it cannot be made: {0}")]
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

/// A checkpoint on its way to the quorum.
struct PendingCheckpoint {
    note: SignedNote,
    head: TreeHead,
    /// By witness.
    cosignatures: BTreeMap<String, NoteSignature>,
    /// It has the quorum, and is stored where that is more than the log's own signature.
    is_stored: bool,
}

impl CheckpointSubmitter {
    /// For the log of `key`, as `settings` say. Connects to nobody yet.
    pub(crate) fn open(
        settings: &WitnessSettings,
        key: &VerifierKey,
        reader: StoreReader,
        appends: AppendQueue,
        ambient: Ambient,
    ) -> Result<Self, Error> {
        let policy = settings.read_policy()?.for_log(key.clone());
        let policy = policy.map_err(|error| settings.unfit(&error))?;
        let private = if settings.private_addresses {
            PrivateAddresses::Allowed
        } else {
            PrivateAddresses::Refused
        };
        for witness in policy.unknown_witnesses() {
            tracing::warn!(
                witness,
                "the key of the witness is of a type that is not known here: it is not asked, and counts for no quorum"
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

    /// Submits what is published, until nothing can be published any more.
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
                    // The last checkpoint may have come in meanwhile.
                    if published.borrow().as_ref() == pending.as_ref().map(|it| &it.note) {
                        return;
                    }
                }
            }
        }
    }

    /// When a witness is asked again that did not cosign `pending`, or else when to look at it again.
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

    /// Asks every witness that did not cosign yet, and stores the checkpoint as soon as the quorum did, and with each further
    /// cosignature.
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
    /// Of what the publisher signed.
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

    /// Stores it, where the quorum cosigned it. Where nobody has to, the checkpoint that is signed is enough.
    async fn store(&mut self, policy: &TrustPolicy, appends: &AppendQueue) {
        let cosigned = self.cosigned();
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

    fn cosigned(&self) -> SignedNote {
        let mut note = self.note.clone();
        for cosignature in self.cosignatures.values() {
            note.add(cosignature.clone());
        }
        note
    }
}

/// A witness that is asked over HTTP (tlog-witness).
struct WitnessClient {
    name: String,
    key: VerifierKey,
    url: Url,
    egress: Egress,
    /// What it saw last, as far as is known.
    seen: u64,
    /// When it is asked next.
    due: Instant,
    /// How long it is left alone after the next failure.
    pause: Duration,
}

impl WitnessClient {
    fn open(
        name: &str,
        key: &VerifierKey,
        url: Url,
        private: &PrivateAddresses,
    ) -> Result<Self, EgressError> {
        let settings = EgressSettings::of(&url, [], private.clone(), ANSWER_LIMIT, ANSWER_BYTES);
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

    /// Its name and its cosignature of the checkpoint `note` of the tree `head`; none where it gave none, which is logged and
    /// counted.
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
                tracing::warn!(witness, error, "a checkpoint is not cosigned");
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
                    Err(_) => return Err(refused(status, &body)),
                },
                _ => return Err(refused(status, &body)),
            }
        }
        Err(SubmissionError::Unsettled)
    }
}

/// The first words of what a witness says.
fn refused(status: StatusCode, body: &str) -> SubmissionError {
    let said: String = body.chars().filter(|c| !c.is_control()).take(200).collect();
    SubmissionError::Refused(status, said)
}
