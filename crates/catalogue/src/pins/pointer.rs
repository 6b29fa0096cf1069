//! JSON pointers (RFC 6901), grown on the way down.

use std::fmt;

/// A place in a document: a step, and the place it was made from.
#[derive(Clone, Copy)]
pub(crate) enum Pointer<'a> {
    Root,
    Member(&'a Pointer<'a>, &'a str),
    Item(&'a Pointer<'a>, usize),
}

impl<'a> Pointer<'a> {
    pub(crate) fn member(&'a self, name: &'a str) -> Self {
        Self::Member(self, name)
    }

    pub(crate) fn item(&'a self, position: usize) -> Self {
        Self::Item(self, position)
    }

    /// The name of the last step, when it is a member.
    pub(crate) fn last_name(&self) -> Option<&'a str> {
        match self {
            Self::Member(_, name) => Some(name),
            Self::Root | Self::Item(..) => None,
        }
    }
}

impl fmt::Display for Pointer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(from, name) => {
                write!(f, "{from}/{}", name.replace('~', "~0").replace('/', "~1"))
            }
            Self::Item(from, position) => write!(f, "{from}/{position}"),
        }
    }
}
