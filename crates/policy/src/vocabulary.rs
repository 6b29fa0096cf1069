//! The vocabulary of Wardgate's requests: the Cedar names of entity types and actions.

use std::collections::BTreeMap;

use cedar_policy::{EntityId, EntityTypeName, EntityUid, RequestEnv, Schema};
use serde_json::Value;
use wardgate_domain::{ColumnTier, OfferKind, OperatorAction};

use crate::history::CallCounters;
use crate::schema_shape::Record;

/// A schema that declares all required names, and these names.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) schema: Schema,
    /// The schema in Cedar's JSON format, in which two schemas can be compared.
    pub(crate) declarations: Value,
    pub(crate) user: EntityTypeName,
    pub(crate) role: EntityTypeName,
    pub(crate) tool: EntityTypeName,
    pub(crate) tag: EntityTypeName,
    pub(crate) source: EntityTypeName,
    pub(crate) class: EntityTypeName,
    pub(crate) arguments: EntityTypeName,
    pub(crate) audit: EntityTypeName,
    pub(crate) conversation: EntityTypeName,
    pub(crate) call_tool: EntityUid,
    connect: EntityUid,
    read_resource: EntityUid,
    get_prompt: EntityUid,
    pub(crate) read: EntityUid,
    pub(crate) operator: BTreeMap<OperatorAction, EntityUid>,
    pub(crate) recall: EntityUid,
    /// The actions that show a column in each tier, mildest first, which is the order in which they are tried.
    pub(crate) show: [(ColumnTier, EntityUid); 4],
    /// The attributes of callers that a deployment declares.
    pub(crate) caller_attributes: Record,
    /// The attributes of a call's arguments that a deployment declares.
    pub(crate) argument_types: Record,
    /// The counters of earlier calls that a deployment declares.
    counters: CallCounters,
    /// The row types by name.
    pub(crate) rows: BTreeMap<String, RowType>,
}

/// The entity type of the rows of a tool.
#[derive(Debug)]
pub(crate) struct RowType {
    pub(crate) name: EntityTypeName,
    pub(crate) attributes: Record,
}

/// A question that policies answer: a request environment of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PolicyQuestion {
    /// May the caller use an offer of this kind?
    Use(OfferKind),
    /// May this row of the named type be released?
    Read(String),
    /// May a column class be shown in the tier with this index?
    Show(usize),
    /// May the caller read a conversation of somebody else?
    Recall,
    /// May the caller perform the operator action?
    Operator(OperatorAction),
}

impl Vocabulary {
    /// Looks up all names in `schema`. Returns `None` if it lacks one.
    pub(crate) fn new(
        schema: Schema,
        declarations: Value,
        caller_attributes: Record,
        argument_types: Record,
        counters: CallCounters,
        rows: BTreeMap<String, Record>,
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
        let show = |tier: ColumnTier, name: &str| Some((tier, action(name)?));
        let row_type = |(name, attributes): (String, Record)| {
            let row_type = RowType {
                name: entity(&name)?,
                attributes,
            };
            Some((name, row_type))
        };
        Some(Self {
            user: entity(USER)?,
            role: entity("Role")?,
            tool: entity("Tool")?,
            tag: entity("Tag")?,
            source: entity("Source")?,
            class: entity("Class")?,
            arguments: entity(ARGUMENTS)?,
            audit: entity("Audit")?,
            conversation: entity("Conversation")?,
            call_tool: action(CALL_TOOL)?,
            connect: action("connect")?,
            read_resource: action("read_resource")?,
            get_prompt: action("get_prompt")?,
            read: action(READ)?,
            operator: OperatorAction::ALL
                .into_iter()
                .map(|it| Some((it, action(it.as_str())?)))
                .collect::<Option<_>>()?,
            recall: action("recall")?,
            show: [
                show(ColumnTier::Clear, "show_clear")?,
                show(ColumnTier::Partial, "show_partial")?,
                show(ColumnTier::Pseudonym, "show_pseudonym")?,
                show(ColumnTier::Generalised, "show_generalised")?,
            ],
            caller_attributes,
            argument_types,
            counters,
            rows: rows.into_iter().map(row_type).collect::<Option<_>>()?,
            schema,
            declarations,
        })
    }

    /// Returns the action and the resource type of the question whether an offer of this kind may be used.
    pub(crate) fn question(&self, kind: OfferKind) -> (&EntityUid, &EntityTypeName) {
        match kind {
            OfferKind::Tool => (&self.call_tool, &self.tool),
            OfferKind::Connect => (&self.connect, &self.source),
            OfferKind::Resources => (&self.read_resource, &self.source),
            OfferKind::Prompts => (&self.get_prompt, &self.source),
        }
    }

    /// Returns the question of a request environment, or `None` if Wardgate never asks it.
    pub(crate) fn question_of(&self, environment: &RequestEnv) -> Option<PolicyQuestion> {
        let action = environment.action();
        if let Some(kind) =
            (OfferKind::ALL.into_iter()).find(|kind| self.question(*kind).0 == action)
        {
            return Some(PolicyQuestion::Use(kind));
        }
        if *action == self.read {
            let row = environment.resource().to_string();
            return (self.rows.contains_key(&row)).then_some(PolicyQuestion::Read(row));
        }
        if *action == self.recall {
            return Some(PolicyQuestion::Recall);
        }
        if let Some(tier) = self.show.iter().position(|(_, show)| show == action) {
            return Some(PolicyQuestion::Show(tier));
        }
        let operator = (OperatorAction::ALL.into_iter())
            .find(|operator| self.operator.get(operator) == Some(action));
        operator.map(PolicyQuestion::Operator)
    }

    /// Returns the counters of earlier calls that policies about this kind can read.
    pub(crate) fn counters(&self, kind: OfferKind) -> &CallCounters {
        static NONE: CallCounters = CallCounters::new();
        match kind {
            OfferKind::Tool => &self.counters,
            OfferKind::Connect | OfferKind::Resources | OfferKind::Prompts => &NONE,
        }
    }

    /// Returns the entity id of the caller with this subject.
    pub(crate) fn user(&self, subject: &str) -> EntityUid {
        uid(&self.user, subject)
    }

    /// Returns the entity id of the arguments of the current call.
    pub(crate) fn call_arguments(&self) -> EntityUid {
        uid(&self.arguments, "of this call")
    }

    /// Returns the entity id of the column class with this name.
    pub(crate) fn class(&self, name: &str) -> EntityUid {
        uid(&self.class, name)
    }
}

/// Returns the id of the entity `id` of the type `name`.
pub(crate) fn uid(name: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(name.clone(), EntityId::new(id))
}

/// The entity type of callers, to which a directory may add attributes.
pub(crate) const USER: &str = "User";

/// The entity type of a call's arguments, to which a directory may add attributes.
pub(crate) const ARGUMENTS: &str = "Arguments";

/// The attributes that every caller has.
pub(crate) const SUBJECT: &str = "subject";
pub(crate) const TENANT: &str = "tenant";

/// The action of tool calls.
pub(crate) const CALL_TOOL: &str = "call_tool";

/// The action whose resources are the row types.
pub(crate) const READ: &str = "read";

/// The attribute of a conversation that contains its owner. Its other attribute is [`TENANT`].
pub(crate) const OWNER: &str = "owner";
