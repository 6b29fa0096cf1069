//! JSON pointers (RFC 6901) that are built while a document is traversed.

use std::fmt;

/// A location in a document: one step, and a reference to its parent.
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

    /// Returns the name of the last step if it is a member.
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
