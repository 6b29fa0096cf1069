//! `result.subject`: the data subjects that the rows of a tool are about.

use wardgate_yaml::{Node, Position, Yaml};

use crate::fault::{Faults, FieldReader};

/// The location of the key of a data subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubjectKey {
    /// A column of each row.
    Column(String),
    /// An argument of the call.
    Argument {
        /// The name of the argument.
        name: String,
        /// The position of the setting in the file.
        at: Position,
    },
}

impl SubjectKey {
    pub(crate) fn is_column(&self) -> bool {
        matches!(self, Self::Column(_))
    }
}

/// Reads one key or a list of keys, each of which is the name of a column or `{ argument: NAME }`.
pub(crate) fn read_subject_keys(node: &Node, faults: &mut Faults) -> Vec<SubjectKey> {
    match &node.value {
        Yaml::List(keys) => {
            let keys = keys.iter().filter_map(|key| read_one(key, faults));
            keys.collect()
        }
        _ => read_one(node, faults).into_iter().collect(),
    }
}

fn read_one(node: &Node, faults: &mut Faults) -> Option<SubjectKey> {
    let Yaml::Map(_) = node.value else {
        let column = faults.text(node, "subject")?;
        return Some(SubjectKey::Column(column.to_owned()));
    };
    let mut fields = FieldReader::new(node, "subject", faults)?;
    let argument =
        fields.take_required("argument", "use the argument that contains the key", faults);
    fields.finish(faults);
    let argument = argument?;
    Some(SubjectKey::Argument {
        name: faults.text(argument, "argument")?.to_owned(),
        at: argument.at,
    })
}
