//! The envelope of a bundle: DSSE 1.0 (<https://github.com/secure-systems-lab/dsse>).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::{BundleError, BundleSigner, BundleVerifier};

/// The type of the payload. A payload that older versions would misunderstand gets a new type.
pub(crate) const PAYLOAD_TYPE: &str = "application/vnd.wardgate.policy-bundle.v1+json";

/// Maximum length of an envelope, in bytes.
pub(crate) const MAX_BYTES: usize = 8 << 20;

/// Maximum number of signatures that are tried.
const MAX_SIGNATURES: usize = 16;

#[derive(Debug, Serialize, Deserialize)]
struct DsseEnvelope {
    #[serde(rename = "payloadType")]
    payload_type: String,
    payload: String,
    signatures: Vec<EnvelopeSignature>,
}

/// A signature. The key id that other tools add is a hint that is not signed, so it is ignored: every trusted key is
/// tried.
#[derive(Debug, Serialize, Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

/// Signs `payload` and returns the envelope. The same payload and key give the same bytes.
pub(crate) fn seal(payload: &[u8], signer: &BundleSigner) -> String {
    let signature = signer.sign(&signed_bytes(payload));
    let envelope = DsseEnvelope {
        payload_type: PAYLOAD_TYPE.to_owned(),
        payload: STANDARD.encode(payload),
        signatures: vec![EnvelopeSignature {
            sig: STANDARD.encode(signature),
        }],
    };
    // A struct of texts always has a JSON form.
    serde_json::to_string(&envelope).unwrap_or_default()
}

/// Returns the payload of an envelope that one of the keys of `verifier` signed.
pub(crate) fn open(bytes: &[u8], verifier: &BundleVerifier) -> Result<Vec<u8>, BundleError> {
    let (payload, signatures) = parse_envelope(bytes)?;
    let message = signed_bytes(&payload);
    let is_signed = signatures.iter().any(|signature| {
        let signature = STANDARD.decode(&signature.sig);
        signature.is_ok_and(|signature| verifier.verify(&message, &signature))
    });
    if is_signed {
        Ok(payload)
    } else {
        Err(BundleError::Signature)
    }
}

/// Returns the payload of an envelope whose signature is not verified.
pub(crate) fn unverified_payload(bytes: &[u8]) -> Result<Vec<u8>, BundleError> {
    parse_envelope(bytes).map(|(payload, _)| payload)
}

fn parse_envelope(bytes: &[u8]) -> Result<(Vec<u8>, Vec<EnvelopeSignature>), BundleError> {
    if bytes.len() > MAX_BYTES {
        return Err(BundleError::TooLarge(format!(
            "is longer than {MAX_BYTES} bytes"
        )));
    }
    let envelope: DsseEnvelope = serde_json::from_slice(bytes)
        .map_err(|error| BundleError::Envelope(format!("it is not a DSSE envelope: {error}")))?;
    if envelope.payload_type != PAYLOAD_TYPE {
        let problem = format!("its payload type is not {PAYLOAD_TYPE}");
        return Err(BundleError::Envelope(problem));
    }
    if envelope.signatures.len() > MAX_SIGNATURES {
        let problem = format!("has more than {MAX_SIGNATURES} signatures");
        return Err(BundleError::TooLarge(problem));
    }
    let payload = STANDARD
        .decode(envelope.payload)
        .map_err(|error| BundleError::Envelope(format!("its payload is not Base64: {error}")))?;
    Ok((payload, envelope.signatures))
}

/// Returns the bytes that are signed: the pre-authentication encoding of DSSE.
fn signed_bytes(payload: &[u8]) -> Vec<u8> {
    let lengths = (PAYLOAD_TYPE.len(), payload.len());
    let mut bytes = format!("DSSEv1 {} {PAYLOAD_TYPE} {} ", lengths.0, lengths.1).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}
