//! Where in a configuration file each key stands, for messages.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

/// A place in a file: line and column, both from 1. Shown as `LINE:COLUMN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    line: u64,
    column: u64,
}

impl Position {
    pub(crate) const START: Self = Self { line: 1, column: 1 };

    pub(crate) fn of(location: Location) -> Self {
        Self {
            line: location.line().max(1),
            column: location.column().max(1),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The keys of a YAML document, each with the place it stands at.
#[derive(Debug, Default)]
pub(crate) struct KeyPositions {
    /// Of a map by key, of a list by number.
    below: Vec<(String, Position, Self)>,
}

impl KeyPositions {
    /// Reads `text`; what is not YAML has no positions, and whoever reads its values says why.
    pub(crate) fn read(text: &str) -> Self {
        serde_saphyr::from_str(text).unwrap_or_default()
    }

    /// Where the last key of `path` stands that the file has; `None` where it has not even the first.
    pub(crate) fn find<'p>(&self, path: impl IntoIterator<Item = &'p str>) -> Option<Position> {
        let mut here = self;
        let mut found = None;
        for step in path {
            let Some((_, position, below)) = here.below.iter().find(|(key, ..)| key == step) else {
                break;
            };
            (here, found) = (below, Some(*position));
        }
        found
    }

    /// Whether the file has the whole path.
    pub(crate) fn has<'p>(&self, path: impl IntoIterator<Item = &'p str>) -> bool {
        let mut here = self;
        for step in path {
            match here.below.iter().find(|(key, ..)| key == step) {
                Some((.., below)) => here = below,
                None => return false,
            }
        }
        true
    }
}

impl<'de> Deserialize<'de> for KeyPositions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyPositionsVisitor)
    }
}

struct KeyPositionsVisitor;

impl<'de> Visitor<'de> for KeyPositionsVisitor {
    type Value = KeyPositions;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<KeyPositions, E> {
        Ok(KeyPositions::default())
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<KeyPositions, E> {
        Ok(KeyPositions::default())
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<KeyPositions, E> {
        Ok(KeyPositions::default())
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<KeyPositions, E> {
        Ok(KeyPositions::default())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<KeyPositions, E> {
        Ok(KeyPositions::default())
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<KeyPositions, E> {
        Ok(KeyPositions::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<KeyPositions, A::Error> {
        let mut below = Vec::new();
        while let Some(item) = items.next_element::<Spanned<KeyPositions>>()? {
            let position = Position::of(item.referenced);
            below.push((below.len().to_string(), position, item.value));
        }
        Ok(KeyPositions { below })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<KeyPositions, A::Error> {
        let mut below = Vec::new();
        while let Some(key) = members.next_key::<Spanned<String>>()? {
            let position = Position::of(key.referenced);
            below.push((key.value, position, members.next_value()?));
        }
        Ok(KeyPositions { below })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_and_item_has_its_place() {
        let positions = KeyPositions::read(
            "gateway:\n  limits: { body_bytes: 5 }\n  hosts:\n    - a\n    - b\n",
        );
        let at = |path: &str| positions.find(path.split('.')).map(|it| it.to_string());
        assert_eq!(at("gateway").as_deref(), Some("1:1"));
        assert_eq!(at("gateway.limits.body_bytes").as_deref(), Some("2:13"));
        assert_eq!(at("gateway.hosts.1").as_deref(), Some("5:7"));
        assert_eq!(
            at("gateway.limits.other").as_deref(),
            Some("2:3"),
            "the last that is there"
        );
        assert_eq!(at("policy"), None);
        assert!(!positions.has(["gateway", "other"]));
    }
}
