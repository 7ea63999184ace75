//! What a watch takes of a collection.

use std::fmt;

use crate::object::{Key, State};

/// What a watch takes of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Select {
    /// Everything.
    #[default]
    All,
    /// One object, by its name.
    Name(Key),
    /// By a label that every write sets anew: `team=t1`.
    Team(u8),
    /// `team!=t1`
    NotTeam(u8),
    /// Pods by `spec.nodeName`; none for those without a node.
    Node(Option<u8>),
    /// Pods by `status.phase`, which is `Running` or `Pending`.
    Running(bool),
    /// Pods by their node and by their label.
    NodeAndTeam(Option<u8>, u8),
}

impl Select {
    /// Whether it takes an object in this state.
    pub fn takes(&self, key: Key, state: &State) -> bool {
        let team = state.mark.team();
        match *self {
            Select::All => true,
            Select::Name(name) => key == name,
            Select::Team(wanted) => team == wanted,
            Select::NotTeam(unwanted) => team != unwanted,
            Select::Node(wanted) => state.fields.node == wanted,
            Select::Running(wanted) => state.fields.is_running == wanted,
            Select::NodeAndTeam(node, wanted) => state.fields.node == node && team == wanted,
        }
    }

    /// Whether an object may enter and leave it by being changed. Its DELETED says nothing of the object then.
    pub fn is_left(&self) -> bool {
        !matches!(self, Select::All | Select::Name(_))
    }

    /// What a watch that has it is called in figures.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Select::All => "watch of all",
            Select::Name(_) => "watch of a name",
            Select::Team(_) | Select::NotTeam(_) => "watch of a label",
            Select::Node(_) | Select::Running(_) => "watch of a field",
            Select::NodeAndTeam(..) => "watch of a field and a label",
        }
    }

    /// The part of a query, with its `&`.
    pub(crate) fn query(&self) -> String {
        let node = |node: &Option<u8>| node.map(|node| format!("n{node}")).unwrap_or_default();
        match self {
            Select::All => String::new(),
            Select::Name(key) => format!("&fieldSelector=metadata.name%3D{key}"),
            Select::Team(team) => format!("&labelSelector=team%3Dt{team}"),
            Select::NotTeam(team) => format!("&labelSelector=team%21%3Dt{team}"),
            Select::Node(of) => format!("&fieldSelector=spec.nodeName%3D{}", node(of)),
            Select::Running(true) => "&fieldSelector=status.phase%3DRunning".to_owned(),
            Select::Running(false) => "&fieldSelector=status.phase%3DPending".to_owned(),
            Select::NodeAndTeam(of, team) => {
                format!("&fieldSelector=spec.nodeName%3D{}&labelSelector=team%3Dt{team}", node(of))
            }
        }
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |node: &Option<u8>| node.map_or("no node".to_owned(), |node| format!("node n{node}"));
        match self {
            Select::All => f.write_str("all"),
            Select::Name(key) => write!(f, "{key}"),
            Select::Team(team) => write!(f, "team=t{team}"),
            Select::NotTeam(team) => write!(f, "team!=t{team}"),
            Select::Node(node) => f.write_str(&on(node)),
            Select::Running(true) => f.write_str("Running"),
            Select::Running(false) => f.write_str("Pending"),
            Select::NodeAndTeam(node, team) => write!(f, "{}, team=t{team}", on(node)),
        }
    }
}
