//! What clients can do with a kind.

/// The verbs of a kind. All kinds can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verbs {
    create: bool,
    update: bool,
    delete: bool,
    watch: bool,
}

impl Verbs {
    /// `get` and `list`.
    pub const READ: Verbs = Verbs { create: false, update: false, delete: false, watch: false };
    /// Everything.
    pub const ALL: Verbs = Verbs { create: true, update: true, delete: true, watch: true };

    /// And `watch`.
    #[must_use]
    pub const fn watch(self) -> Verbs {
        Verbs { watch: true, ..self }
    }

    /// And `create`.
    #[must_use]
    pub const fn create(self) -> Verbs {
        Verbs { create: true, ..self }
    }

    /// And `update`, with `patch` and server-side apply.
    #[must_use]
    pub const fn update(self) -> Verbs {
        Verbs { update: true, ..self }
    }

    /// And `delete`, with `deletecollection`.
    #[must_use]
    pub const fn delete(self) -> Verbs {
        Verbs { delete: true, ..self }
    }

    /// Whether this verb is among them, as discovery names it.
    pub(crate) fn has(self, verb: &str) -> bool {
        match verb {
            "create" => self.create,
            "update" | "patch" => self.update,
            "delete" | "deletecollection" => self.delete,
            "watch" => self.watch,
            _ => true,
        }
    }
}
