//! Trust policies: the trusted logs and witnesses, and the quorum of witnesses that a checkpoint needs.

use std::str::FromStr;

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::key::{VerifierKey, public_key_of_unknown_type};
use crate::note::SignedNote;

/// Name of the quorum that requires no witness.
const NOBODY: &str = "none";

/// Maximum size of a policy file in bytes.
const MAX_BYTES: usize = 64 * 1_024;

/// A trust policy (tlog-policy). A checkpoint is valid if one of the logs signed it and the quorum of witnesses cosigned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustPolicy {
    logs: Vec<VerifierKey>,
    /// The witnesses and groups. Each group follows its members.
    components: Vec<Component>,
    quorum: Quorum,
}

/// The cosignatures that a checkpoint needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quorum {
    Nobody,
    /// The component with this index must have cosigned.
    Component(usize),
}

/// A witness or a group of witnesses.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Component {
    Witness(TrustedWitness),
    /// A witness whose cosignatures have an unknown type and therefore do not count.
    UnknownWitness {
        name: String,
        /// The public key with its type byte.
        public: Vec<u8>,
    },
    Group {
        name: String,
        threshold: usize,
        members: Vec<usize>,
    },
}

impl Component {
    fn name(&self) -> &str {
        match self {
            Self::Witness(witness) => &witness.name,
            Self::UnknownWitness { name, .. } | Self::Group { name, .. } => name,
        }
    }

    /// Returns whether both are witnesses with the same public key.
    fn has_key_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Witness(one), Self::Witness(other)) => one.key.is_same_public_key(&other.key),
            (
                Self::UnknownWitness { public: one, .. },
                Self::UnknownWitness { public: other, .. },
            ) => one == other,
            _ => false,
        }
    }
}

/// A witness whose cosignatures count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedWitness {
    /// The name of the witness in the policy.
    pub name: String,
    /// The key that verifies the cosignatures of the witness.
    pub key: VerifierKey,
    /// The URL prefix for submissions to the witness (the submission prefix of tlog-witness), as written, or `None` if the
    /// policy has no URL.
    pub url: Option<String>,
}

impl TrustPolicy {
    /// Creates a policy that trusts one log and requires no witness.
    pub fn of_log(key: VerifierKey) -> Self {
        Self {
            logs: vec![key],
            components: Vec::new(),
            quorum: Quorum::Nobody,
        }
    }

    /// Returns the policy with the same quorum for only the log of `key`. Fails if the policy names logs, but not this one.
    pub fn for_log(mut self, key: VerifierKey) -> Result<Self, Error> {
        if !self.logs.is_empty() && !self.logs.contains(&key) {
            return Err(Error::OtherLog(key.name().to_owned()));
        }
        self.logs = vec![key];
        Ok(self)
    }

    /// Returns the trusted logs; none if the policy does not name any.
    pub fn logs(&self) -> &[VerifierKey] {
        &self.logs
    }

    /// Returns the witnesses whose cosignatures can be verified, in order.
    pub fn witnesses(&self) -> impl Iterator<Item = &TrustedWitness> {
        self.components
            .iter()
            .filter_map(|component| match component {
                Component::Witness(witness) => Some(witness),
                Component::UnknownWitness { .. } | Component::Group { .. } => None,
            })
    }

    /// Returns the names of the witnesses whose keys have an unknown type, which count for no quorum.
    pub fn unknown_witnesses(&self) -> impl Iterator<Item = &str> {
        self.components
            .iter()
            .filter(|component| matches!(component, Component::UnknownWitness { .. }))
            .map(Component::name)
    }

    /// Returns the checkpoint in `note` if one of the logs signed it, with or without cosignatures.
    pub fn verify_log(&self, note: &SignedNote) -> Result<Checkpoint, Error> {
        let mut refusal = Error::NotSigned("any log of the policy".to_owned());
        for key in &self.logs {
            match Checkpoint::verify(note, key) {
                Ok(checkpoint) => return Ok(checkpoint),
                // If the policy has one log, the error names its key.
                Err(error) => {
                    if self.logs.len() == 1 || !matches!(error, Error::NotSigned(_)) {
                        refusal = error;
                    }
                }
            }
        }
        Err(refusal)
    }

    /// Returns the checkpoint in `note` if one of the logs signed it and the quorum cosigned it.
    pub fn verify(&self, note: &SignedNote) -> Result<Checkpoint, Error> {
        let checkpoint = self.verify_log(note)?;
        self.verify_quorum(note)?;
        Ok(checkpoint)
    }

    /// Fails unless the quorum cosigned `note`, and every cosignature in the name of a trusted witness is valid.
    pub fn verify_quorum(&self, note: &SignedNote) -> Result<(), Error> {
        let mut witnessed = Vec::with_capacity(self.components.len());
        for component in &self.components {
            witnessed.push(match component {
                Component::Witness(witness) => match witness.key.verify(note) {
                    Ok(()) => true,
                    Err(Error::NotSigned(_)) => false,
                    Err(wrong) => return Err(wrong),
                },
                Component::UnknownWitness { .. } => false,
                Component::Group {
                    threshold, members, ..
                } => {
                    let of_members = members.iter().filter(|member| witnessed[**member]);
                    of_members.count() >= *threshold
                }
            });
        }
        match self.quorum {
            Quorum::Component(at) if !witnessed[at] => {
                Err(Error::Quorum(self.components[at].name().to_owned()))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for TrustPolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_BYTES {
            return Err(Error::Policy {
                line: 0,
                problem: "it has more than 65536 bytes",
            });
        }
        let mut parser = PolicyParser::default();
        for (index, line) in text.lines().enumerate() {
            let refused = |problem| Error::Policy {
                line: index + 1,
                problem,
            };
            if line.contains(|c: char| c.is_ascii_control() && c != '\t') {
                return Err(refused("it contains a control character"));
            }
            parser.parse_line(line).map_err(refused)?;
        }
        let quorum = parser.quorum.ok_or(Error::Policy {
            line: 0,
            problem: "it has no `quorum` line",
        })?;
        Ok(Self {
            logs: parser.logs,
            components: parser.components,
            quorum,
        })
    }
}

/// The state of parsing a policy file.
#[derive(Default)]
struct PolicyParser {
    logs: Vec<VerifierKey>,
    components: Vec<Component>,
    /// The indexes of the components that are already members of a group.
    grouped: Vec<usize>,
    quorum: Option<Quorum>,
}

impl PolicyParser {
    fn parse_line(&mut self, line: &str) -> Result<(), &'static str> {
        let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
        match words.next() {
            None => Ok(()),
            Some(word) if word.starts_with('#') => Ok(()),
            Some("log") => self.add_log(words),
            Some("witness") => self.add_witness(words),
            Some("group") => self.add_group(words),
            Some("quorum") => self.set_quorum(words),
            Some(_) => Err("it does not begin with log, witness, group, quorum or #"),
        }
    }

    fn add_log<'a>(
        &mut self,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<(), &'static str> {
        const FORM: &str = "it is not `log VKEY [URL]`";
        let key: VerifierKey = words.next().ok_or(FORM)?.parse().map_err(|_| FORM)?;
        if words.nth(1).is_some() {
            return Err(FORM);
        }
        if key.is_of_witness() {
            return Err("the key is that of a witness");
        }
        if self.logs.iter().any(|other| other.is_same_public_key(&key)) {
            return Err("another log has this key");
        }
        self.logs.push(key);
        Ok(())
    }

    fn add_witness<'a>(
        &mut self,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<(), &'static str> {
        const FORM: &str = "it is not `witness NAME VKEY [URL]`";
        let name = self.new_name(words.next().ok_or(FORM)?)?;
        let key = words.next().ok_or(FORM)?;
        let url = words.next().map(str::to_owned);
        if words.next().is_some() {
            return Err(FORM);
        }
        let component = if let Some(public) = public_key_of_unknown_type(key) {
            Component::UnknownWitness { name, public }
        } else {
            let key: VerifierKey = key.parse().map_err(|_| FORM)?;
            if !key.is_of_witness() {
                return Err("the key is not that of a witness");
            }
            Component::Witness(TrustedWitness { name, key, url })
        };
        if self.components.iter().any(|it| it.has_key_of(&component)) {
            return Err("another witness has this key");
        }
        self.components.push(component);
        Ok(())
    }

    fn add_group<'a>(
        &mut self,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<(), &'static str> {
        const FORM: &str = "it is not `group NAME all|any|NUMBER MEMBER…`";
        let name = self.new_name(words.next().ok_or(FORM)?)?;
        let threshold = words.next().ok_or(FORM)?;
        let members = words
            .map(|word| self.find(word))
            .collect::<Result<Vec<_>, _>>()?;
        let threshold = match threshold {
            "all" => members.len(),
            "any" => 1,
            number => usize::try_from(crate::checkpoint::decimal(number).ok_or(FORM)?)
                .map_err(|_| FORM)?,
        };
        if threshold == 0 || threshold > members.len() {
            return Err("its threshold is zero, or larger than the number of its members");
        }
        for member in &members {
            if self.grouped.contains(member) {
                return Err("a name occurs twice as a member");
            }
            self.grouped.push(*member);
        }
        self.components.push(Component::Group {
            name,
            threshold,
            members,
        });
        Ok(())
    }

    fn set_quorum<'a>(
        &mut self,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<(), &'static str> {
        const FORM: &str = "it is not `quorum NAME` or `quorum none`";
        let name = words.next().ok_or(FORM)?;
        if words.next().is_some() {
            return Err(FORM);
        }
        let quorum = match name {
            NOBODY => Quorum::Nobody,
            name => Quorum::Component(self.find(name)?),
        };
        match self.quorum.replace(quorum) {
            None => Ok(()),
            Some(_) => Err("it is a second `quorum` line"),
        }
    }

    fn find(&self, name: &str) -> Result<usize, &'static str> {
        let mut components = self.components.iter();
        let found = components.position(|component| component.name() == name);
        found.ok_or("it uses a name that no earlier line defines")
    }

    fn new_name(&self, name: &str) -> Result<String, &'static str> {
        if name == NOBODY || self.find(name).is_ok() {
            return Err("its name is already used");
        }
        Ok(name.to_owned())
    }
}
