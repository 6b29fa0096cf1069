//! The words a schema must offer so that Wardgate can ask its questions in them.

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::{EntityId, EntityTypeName, EntityUid, Schema};
use wardgate_domain::{ColumnTier, OfferKind};

use crate::schema_shape::{ActionShape, Attribute, Declarations, EntityShape, Record, Type};

/// A schema that offers every word, and the words.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) schema: Schema,
    pub(crate) user: EntityTypeName,
    pub(crate) role: EntityTypeName,
    pub(crate) tool: EntityTypeName,
    pub(crate) tag: EntityTypeName,
    pub(crate) class: EntityTypeName,
    pub(crate) arguments: EntityTypeName,
    pub(crate) call_tool: EntityUid,
    pub(crate) read: EntityUid,
    /// Mildest first: the order in which tiers are tried.
    pub(crate) show: [(ColumnTier, EntityUid); 4],
    /// What a deployment adds to its callers.
    pub(crate) caller_attributes: Record,
    /// Row types by name.
    pub(crate) rows: BTreeMap<String, RowType>,
    /// Absent where the schema does not speak of conversations; they are then never shared.
    pub(crate) sharing: Option<RecallVocabulary>,
    /// Absent where the schema does not speak of the record; nobody then reads it but an operator.
    pub(crate) auditing: Option<AuditVocabulary>,
    /// Absent where the schema does not speak of sources; nothing of them but tools is then ever used.
    pub(crate) using: Option<UsageVocabulary>,
}

/// The types and actions for using what a source offers besides tools.
#[derive(Debug)]
pub(crate) struct UsageVocabulary {
    pub(crate) source: EntityTypeName,
    connect: EntityUid,
    read_resource: EntityUid,
    get_prompt: EntityUid,
}

/// The types and actions for reading conversations of others.
#[derive(Debug)]
pub(crate) struct RecallVocabulary {
    pub(crate) conversation: EntityTypeName,
    pub(crate) recall: EntityUid,
}

/// The types and actions for reading the record.
#[derive(Debug)]
pub(crate) struct AuditVocabulary {
    pub(crate) audit: EntityTypeName,
    pub(crate) read_record: EntityUid,
    /// Absent where the schema does not offer it; then nobody reads what they did themselves by this alone.
    pub(crate) read_own_record: Option<EntityUid>,
}

/// The type of a tool's rows.
#[derive(Debug)]
pub(crate) struct RowType {
    pub(crate) name: EntityTypeName,
    pub(crate) attributes: Record,
}

/// A declaration that the schema lacks, and the problem that follows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MissingDeclaration {
    pub(crate) problem: String,
    pub(crate) declare: String,
}

impl Vocabulary {
    /// The words of `schema`, whose declarations are `declared`.
    pub(crate) fn of(
        schema: Schema,
        declared: &Declarations,
    ) -> Result<Self, Vec<MissingDeclaration>> {
        let mut lacks = DeclarationChecker {
            declared,
            found: Vec::new(),
        };

        lacks.entity("Role", &[], &[], None, "entity Role;");
        lacks.entity("Tag", &[], &[], None, "entity Tag;");
        lacks.entity("Class", &["Class"], &[], None, "entity Class in [Class];");
        let read_only = [("read_only", Type::Boolean, true)];
        lacks.entity(
            "Tool",
            &["Tag"],
            &read_only,
            None,
            "entity Tool in [Tag] { read_only: Bool };",
        );
        let tags = Some(&Type::Text);
        lacks.entity("Arguments", &[], &[], tags, "entity Arguments tags String;");
        let caller_attributes = lacks.caller();

        let context = [
            ("arguments", Type::Entity("Arguments".to_owned()), true),
            ("client_ip", Type::Text, false),
        ];
        lacks.action("call_tool", Some("Tool"), &context);
        for (_, action) in SHOW {
            lacks.action(action, Some("Class"), &[]);
        }
        let row_shapes = lacks.rows();
        let shares = lacks.sharing(&row_shapes);
        let audits = lacks.auditing(&row_shapes);
        let uses = lacks.using(&row_shapes, &context);
        let spoken = OptionalVocabulary {
            shares,
            audits,
            uses,
        };

        if !lacks.found.is_empty() {
            return Err(lacks.found);
        }
        Self::name_them(schema, caller_attributes, row_shapes, &spoken).ok_or_else(|| {
            vec![MissingDeclaration {
                problem: "the schema declares its words in a namespace".to_owned(),
                declare: "the entities and actions outside any namespace".to_owned(),
            }]
        })
    }

    fn name_them(
        schema: Schema,
        caller_attributes: Record,
        rows: BTreeMap<String, Record>,
        spoken: &OptionalVocabulary,
    ) -> Option<Self> {
        let entity = |name: &str| {
            let found = schema
                .entity_types()
                .find(|known| known.to_string() == name);
            found.cloned()
        };
        let action = |name: &str| {
            let found = schema.actions().find(|known| {
                known.id().unescaped() == name && known.type_name().to_string() == "Action"
            });
            found.cloned()
        };
        let [clear, partial, pseudonym, generalised] = SHOW;
        let show = |(tier, name): (ColumnTier, &str)| action(name).map(|action| (tier, action));
        Some(Self {
            user: entity("User")?,
            role: entity("Role")?,
            tool: entity("Tool")?,
            tag: entity("Tag")?,
            class: entity("Class")?,
            arguments: entity("Arguments")?,
            call_tool: action("call_tool")?,
            read: action("read")?,
            show: [
                show(clear)?,
                show(partial)?,
                show(pseudonym)?,
                show(generalised)?,
            ],
            caller_attributes,
            rows: rows
                .into_iter()
                .map(|(name, attributes)| {
                    Some((
                        name.clone(),
                        RowType {
                            name: entity(&name)?,
                            attributes,
                        },
                    ))
                })
                .collect::<Option<_>>()?,
            sharing: if spoken.shares {
                Some(RecallVocabulary {
                    conversation: entity(CONVERSATION)?,
                    recall: action(RECALL)?,
                })
            } else {
                None
            },
            auditing: if spoken.audits {
                Some(AuditVocabulary {
                    audit: entity(AUDIT)?,
                    read_record: action(READ_RECORD)?,
                    read_own_record: action(READ_OWN_RECORD),
                })
            } else {
                None
            },
            using: if spoken.uses {
                Some(UsageVocabulary {
                    source: entity(SOURCE)?,
                    connect: action(CONNECT)?,
                    read_resource: action(READ_RESOURCE)?,
                    get_prompt: action(GET_PROMPT)?,
                })
            } else {
                None
            },
            schema,
        })
    }

    /// The question whether something of this kind may be used: its action and the type of its resource. None where
    /// the schema has no words for it.
    pub(crate) fn question(&self, kind: OfferKind) -> Option<(&EntityUid, &EntityTypeName)> {
        let using = self.using.as_ref();
        let of_source = |action: fn(&UsageVocabulary) -> &EntityUid| {
            using.map(|using| (action(using), &using.source))
        };
        match kind {
            OfferKind::Tool => Some((&self.call_tool, &self.tool)),
            OfferKind::Connect => of_source(|using| &using.connect),
            OfferKind::Resources => of_source(|using| &using.read_resource),
            OfferKind::Prompts => of_source(|using| &using.get_prompt),
        }
    }

    /// The caller with this subject.
    pub(crate) fn user(&self, subject: &str) -> EntityUid {
        uid(&self.user, subject)
    }

    /// The column class of this name.
    pub(crate) fn class(&self, name: &str) -> EntityUid {
        uid(&self.class, name)
    }
}

/// The entity `id` of type `name`.
pub(crate) fn uid(name: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(name.clone(), EntityId::new(id))
}

/// The tiers a policy can give, mildest first, and the action that asks for each.
const SHOW: [(ColumnTier, &str); 4] = [
    (ColumnTier::Clear, "show_clear"),
    (ColumnTier::Partial, "show_partial"),
    (ColumnTier::Pseudonym, "show_pseudonym"),
    (ColumnTier::Generalised, "show_generalised"),
];

/// Attributes that every caller has.
pub(crate) const SUBJECT: &str = "subject";
pub(crate) const TENANT: &str = "tenant";

/// The words that a schema may leave out, together.
const CONVERSATION: &str = "Conversation";
const RECALL: &str = "recall";

/// Words that a schema may leave out, together.
const AUDIT: &str = "Audit";
const READ_RECORD: &str = "read_record";

/// With those two, or left out as well.
const READ_OWN_RECORD: &str = "read_own_record";

/// Words that a schema may leave out, together.
const SOURCE: &str = "Source";
const CONNECT: &str = "connect";
const READ_RESOURCE: &str = "read_resource";
const GET_PROMPT: &str = "get_prompt";

/// Attributes that every conversation has, besides [`TENANT`].
pub(crate) const OWNER: &str = "owner";

/// The optional parts of the vocabulary, and which of them the schema declares.
struct OptionalVocabulary {
    shares: bool,
    audits: bool,
    uses: bool,
}

/// Collects the declarations that a schema lacks.
struct DeclarationChecker<'a> {
    declared: &'a Declarations,
    found: Vec<MissingDeclaration>,
}

impl DeclarationChecker<'_> {
    fn add(&mut self, problem: String, declare: &str) {
        self.found.push(MissingDeclaration {
            problem,
            declare: format!("declare `{declare}`"),
        });
    }

    fn entity(
        &mut self,
        name: &str,
        parents: &[&str],
        attributes: &[(&str, Type, bool)],
        tags: Option<&Type>,
        declare: &str,
    ) {
        let Some(shape) = self.declared.entity(name) else {
            return self.add(format!("the schema has no entity `{name}`"), declare);
        };
        self.parents(name, &shape, parents, declare);
        let of = format!("entity `{name}`");
        self.attributes(&of, &shape.attributes, attributes, declare);
        if shape.tags.as_ref() != tags {
            self.add(
                format!("the tags of entity `{name}` are not as Wardgate fills them"),
                declare,
            );
        }
    }

    fn parents(&mut self, name: &str, shape: &EntityShape, parents: &[&str], declare: &str) {
        if !names(parents).eq(&shape.parents) {
            self.add(
                format!("entity `{name}` is in other entities than Wardgate puts it in"),
                declare,
            );
        }
    }

    /// Each of `wanted` is there, and nothing else, since nothing else would ever have a value.
    fn attributes(
        &mut self,
        of: &str,
        found: &Record,
        expected: &[(&str, Type, bool)],
        declare: &str,
    ) {
        for (name, r#type, required) in expected {
            let as_wanted = Attribute {
                r#type: r#type.clone(),
                required: *required,
            };
            let optional = if *required { "" } else { "?" };
            match found.get(*name) {
                None => self.add(format!("{of} lacks `{name}{optional}: {type}`"), declare),
                Some(attribute) if *attribute != as_wanted => {
                    self.add(
                        format!("in {of}, `{name}` is not `{name}{optional}: {type}`"),
                        declare,
                    );
                }
                Some(_) => {}
            }
        }
        for name in found.keys() {
            if !expected.iter().any(|(known, ..)| known == name) {
                self.add(
                    format!("{of} has `{name}`, which nothing gives a value"),
                    declare,
                );
            }
        }
    }

    /// The caller: two fixed attributes, and any others that a token claim can fill.
    fn caller(&mut self) -> Record {
        let declare = "entity User in [Role] { subject: String, tenant: String };";
        let Some(shape) = self.declared.entity("User") else {
            self.add("the schema has no entity `User`".to_owned(), declare);
            return Record::new();
        };
        self.parents("User", &shape, &["Role"], declare);
        if shape.tags.is_some() {
            self.add(
                "entity `User` has tags, which nothing fills".to_owned(),
                declare,
            );
        }
        let (fixed, others): (Record, Record) = shape
            .attributes
            .into_iter()
            .partition(|(name, _)| [SUBJECT, TENANT].contains(&name.as_str()));
        let expected = [(SUBJECT, Type::Text, true), (TENANT, Type::Text, true)];
        self.attributes("entity `User`", &fixed, &expected, declare);
        let types = [Type::Text, Type::Integer, Type::Boolean, Type::Texts];
        self.plain("User", &others, &types);
        others
    }

    fn action(&mut self, name: &str, resource: Option<&str>, context: &[(&str, Type, bool)]) {
        let fields: Vec<_> = context
            .iter()
            .map(|(name, r#type, required)| {
                format!("{name}{}: {type}", if *required { "" } else { "?" })
            })
            .collect();
        let declare = format!(
            "action {name} appliesTo {{ principal: User, resource: {}, context: {{ {} }} }};",
            resource.unwrap_or("[your row types]"),
            fields.join(", ")
        );
        let Some(shape) = self.declared.action(name) else {
            return self.add(
                format!("the schema has no action `{name}` that applies to anything"),
                &declare,
            );
        };
        let ActionShape {
            principals,
            resources,
            context: found,
        } = shape;
        if !names(&["User"]).eq(&principals) {
            self.add(
                format!("the principal of action `{name}` is not `User`"),
                &declare,
            );
        }
        if resource.is_some_and(|resource| !names(&[resource]).eq(&resources)) {
            self.add(
                format!("the resource of action `{name}` is something else"),
                &declare,
            );
        }
        self.attributes(
            &format!("the context of `{name}`"),
            &found,
            context,
            &declare,
        );
    }

    /// The resources of `read`: one flat entity per kind of row.
    fn rows(&mut self) -> BTreeMap<String, Record> {
        self.action("read", None, &[]);
        let resources = self
            .declared
            .action("read")
            .map(|read| read.resources)
            .unwrap_or_default();
        let mut rows = BTreeMap::new();
        for name in resources {
            let declare = format!("entity {name} {{ column?: String }};");
            let Some(shape) = self.declared.entity(&name) else {
                self.add(
                    format!("row type `{name}` is in a namespace or enumerated"),
                    &declare,
                );
                continue;
            };
            // A row comes from a query alone: what it would be in, or be tagged with, nobody can say.
            if !shape.parents.is_empty() || shape.tags.is_some() {
                self.add(
                    format!("row type `{name}` has parents or tags, which no row has"),
                    &declare,
                );
            }
            let types = [Type::Text, Type::Integer, Type::Boolean];
            self.plain(&name, &shape.attributes, &types);
            rows.insert(name, shape.attributes);
        }
        rows
    }

    /// Whether the schema speaks of conversations; when it begins to, it must offer both words as they are meant.
    fn sharing(&mut self, rows: &BTreeMap<String, Record>) -> bool {
        let named =
            self.declared.entity(CONVERSATION).is_some() && !rows.contains_key(CONVERSATION);
        if !named && !self.declared.has_action(RECALL) {
            return false;
        }
        let attributes = [
            (OWNER, Type::Entity("User".to_owned()), true),
            (TENANT, Type::Text, true),
        ];
        self.entity(
            CONVERSATION,
            &[],
            &attributes,
            None,
            "entity Conversation { owner: User, tenant: String };",
        );
        self.action(RECALL, Some(CONVERSATION), &[]);
        true
    }

    /// Whether the schema speaks of the record; when it begins to, it must offer both words as they are meant, and the
    /// third where it is there.
    fn auditing(&mut self, rows: &BTreeMap<String, Record>) -> bool {
        let named = self.declared.entity(AUDIT).is_some() && !rows.contains_key(AUDIT);
        let own = self.declared.has_action(READ_OWN_RECORD);
        if !named && !own && !self.declared.has_action(READ_RECORD) {
            return false;
        }
        self.entity(AUDIT, &[], &[], None, "entity Audit;");
        self.action(READ_RECORD, Some(AUDIT), &[]);
        if own {
            self.action(READ_OWN_RECORD, Some(AUDIT), &[]);
        }
        true
    }

    /// Whether the schema speaks of sources; when it begins to, it must offer all its words as they are meant.
    fn using(&mut self, rows: &BTreeMap<String, Record>, context: &[(&str, Type, bool)]) -> bool {
        let actions = [CONNECT, READ_RESOURCE, GET_PROMPT];
        let named = self.declared.entity(SOURCE).is_some() && !rows.contains_key(SOURCE);
        if !named && !actions.iter().any(|word| self.declared.has_action(word)) {
            return false;
        }
        self.entity(SOURCE, &["Tag"], &[], None, "entity Source in [Tag];");
        for action in actions {
            self.action(action, Some(SOURCE), context);
        }
        true
    }

    fn plain(&mut self, entity: &str, attributes: &Record, types: &[Type]) {
        for (name, attribute) in attributes {
            if !types.contains(&attribute.r#type) {
                let types: Vec<_> = types.iter().map(ToString::to_string).collect();
                self.add(
                    format!("`{name}` of entity `{entity}` has a type that nothing gives it"),
                    &format!("{name}: one of {}", types.join(", ")),
                );
            }
        }
    }
}

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests;
