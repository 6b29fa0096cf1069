//! What the crate promises, against vectors of the specifications, against two other implementations, and against
//! forgeries.

mod differential;
mod forgery;
mod support;
mod vectors;
