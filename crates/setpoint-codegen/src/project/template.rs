//! The templates: files about a kind `Widget`, whose names are replaced, with Jinja for what depends on the options.

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior, Value};

use crate::error::Error;

/// The files of a project that are made from a template alone, and their templates, which are in one folder.
macro_rules! files {
    ($name:ident in $folder:literal; $($path:literal from $file:literal),* $(,)?) => {
        pub(super) const $name: &[(&str, &str)] =
            &[$(($path, include_str!(concat!("../../templates/", $folder, "/", $file)))),*];
    };
}

files! { OPERATOR in "project";
    ".dockerignore" from "dockerignore",
    ".github/workflows/ci.yaml" from "github/ci.yaml",
    ".gitignore" from "gitignore",
    "Cargo.toml" from "Cargo.toml.in",
    "Dockerfile" from "Dockerfile",
    "README.md" from "README.md",
    "config/crd/kustomization.yaml" from "config/crd/kustomization.yaml",
    "config/default/kustomization.yaml" from "config/default/kustomization.yaml",
    "config/manager/deployment.yaml" from "config/manager/deployment.yaml",
    "config/manager/kustomization.yaml" from "config/manager/kustomization.yaml",
    "config/manager/namespace.yaml" from "config/manager/namespace.yaml",
    "config/rbac/kustomization.yaml" from "config/rbac/kustomization.yaml",
    "config/metrics/kustomization.yaml" from "config/metrics/kustomization.yaml",
    "config/metrics/rbac.yaml" from "config/metrics/rbac.yaml",
    "config/metrics/service.yaml" from "config/metrics/service.yaml",
    "config/webhook/certificate.yaml" from "config/webhook/certificate.yaml",
    "config/webhook/kustomization.yaml" from "config/webhook/kustomization.yaml",
    "config/webhook/rbac.yaml" from "config/webhook/rbac.yaml",
    "config/webhook/service.yaml" from "config/webhook/service.yaml",
    "config/webhook/webhooks.yaml" from "config/webhook/webhooks.yaml",
    "examples/manifests.rs" from "examples/manifests.rs",
    "src/children.rs" from "src/children.rs",
    "src/controller.rs" from "src/controller.rs",
    "src/lib.rs" from "src/lib.rs",
    "src/main.rs" from "src/main.rs",
    "src/webhook.rs" from "src/webhook.rs",
    "tests/explore.rs" from "tests/explore.rs",
    "tests/rbac.rs" from "tests/rbac.rs",
    "tests/reconcile.rs" from "tests/reconcile.rs",
    "tests/webhook.rs" from "tests/webhook.rs",
}

files! { EXTENSION_SERVER in "extension";
    ".dockerignore" from "../project/dockerignore",
    ".github/workflows/ci.yaml" from "../project/github/ci.yaml",
    ".gitignore" from "../project/gitignore",
    "Cargo.toml" from "Cargo.toml.in",
    "Dockerfile" from "../project/Dockerfile",
    "README.md" from "README.md",
    "config/apiservice/apiservice.yaml" from "config/apiservice/apiservice.yaml",
    "config/apiservice/certificate.yaml" from "../project/config/webhook/certificate.yaml",
    "config/apiservice/kustomization.yaml" from "config/apiservice/kustomization.yaml",
    "config/default/kustomization.yaml" from "config/default/kustomization.yaml",
    "config/rbac/kustomization.yaml" from "../project/config/rbac/kustomization.yaml",
    "config/rbac/rbac.yaml" from "config/rbac/rbac.yaml",
    "config/samples/widget.yaml" from "config/samples/widget.yaml",
    "config/server/deployment.yaml" from "config/server/deployment.yaml",
    "config/server/kustomization.yaml" from "config/server/kustomization.yaml",
    "config/server/namespace.yaml" from "../project/config/manager/namespace.yaml",
    "config/server/service.yaml" from "config/server/service.yaml",
    "src/lib.rs" from "src/lib.rs",
    "src/main.rs" from "src/main.rs",
    "src/store.rs" from "src/store.rs",
    "tests/server.rs" from "tests/server.rs",
}

/// The kind of an extension server.
pub(super) const SERVED_TYPES: &str = include_str!("../../templates/extension/src/api.rs");
/// The kind itself, unless there is a CRD.
pub(super) const TYPES: &str = include_str!("../../templates/project/src/api.rs");
/// An object of it.
pub(super) const SAMPLE: &str = include_str!("../../templates/project/config/samples/widget.yaml");

/// What templates are filled in with.
#[derive(Debug)]
pub(super) struct Template {
    /// The longest first, so that no word is taken for a part of another.
    words: Vec<(&'static str, String)>,
    environment: Environment<'static>,
}

impl Template {
    pub(super) fn new(words: &[(&'static str, String)]) -> Result<Template, Error> {
        let mut words = words.to_vec();
        words.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
        // Lines with nothing but `{% … %}` leave nothing behind.
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .keep_trailing_newline(true)
            .build()
            .map_err(|error| Error::new("", error))?;
        let mut environment = Environment::empty();
        environment.set_syntax(syntax);
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        Ok(Template { words, environment })
    }

    /// Replaces the words of the templates, each once.
    pub(super) fn names(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (taken, written) = match self.words.iter().find(|(word, _)| rest.starts_with(word)) {
                Some((word, name)) => (word.len(), name.as_str()),
                None => (first.len_utf8(), &rest[..first.len_utf8()]),
            };
            out.push_str(written);
            rest = &rest[taken..];
        }
        out
    }

    /// Fills in the template of the file at `path`. The values are the user's: no word in them is ours.
    pub(super) fn render(&self, path: &str, text: &str, values: &Value) -> Result<String, Error> {
        let rendered = self.environment.render_named_str(path, &self.names(text), values);
        rendered.map_err(|error| Error::new(path, error))
    }
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    #[test]
    fn words_are_replaced_once_the_longest_first() -> Result<(), Error> {
        let template = Template::new(&[("Widget", "Gadget".into()), ("widget-operator", "Widget".into())])?;
        assert_eq!(template.names("widget-operator: Widgets ä"), "Widget: Gadgets ä");
        Ok(())
    }

    #[test]
    fn lines_of_conditions_leave_nothing_and_values_stay_as_they_are() -> Result<(), Error> {
        let template = Template::new(&[("a", "A".into())])?;
        let text = "a\n{% if x %}\nb\n{% endif %}\n{{ v }}\n";
        let render = |x| template.render("test", text, &context! { x => x, v => "a <?>" });
        assert_eq!(render(true)?, "A\nb\na <?>\n");
        assert_eq!(render(false)?, "A\na <?>\n");
        assert!(
            template.render("test", text, &context! { x => true }).is_err(),
            "what is not said is an error"
        );
        Ok(())
    }
}
