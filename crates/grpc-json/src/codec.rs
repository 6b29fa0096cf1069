//! A codec for messages whose types are known only at run time.

use std::sync::Arc;

use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// A codec that sends messages of any type and receives messages of one type.
pub(super) struct DynamicCodec {
    pub(super) receives: MessageDescriptor,
}

/// The source of the status for a message that cannot be decoded as its type.
#[derive(Debug, thiserror::Error)]
#[error("the bytes are not a message of the type")]
pub(super) struct DecodeFailure;

pub(super) struct DynamicEncoder;

pub(super) struct DynamicDecoder {
    receives: MessageDescriptor,
}

impl Codec for DynamicCodec {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = DynamicEncoder;
    type Decoder = DynamicDecoder;

    fn encoder(&mut self) -> DynamicEncoder {
        DynamicEncoder
    }

    fn decoder(&mut self) -> DynamicDecoder {
        DynamicDecoder {
            receives: self.receives.clone(),
        }
    }
}

impl Encoder for DynamicEncoder {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode_raw(buffer);
        Ok(())
    }
}

impl Decoder for DynamicDecoder {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        DynamicMessage::decode(self.receives.clone(), buffer)
            .map(Some)
            .map_err(|_| {
                let mut status = Status::internal(DecodeFailure.to_string());
                status.set_source(Arc::new(DecodeFailure));
                status
            })
    }
}
