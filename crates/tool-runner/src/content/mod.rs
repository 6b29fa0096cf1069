//! Prompts and resources.

mod own;

pub(crate) use own::Own;
