//! Types → code, as rustfmt writes it.

use super::docs::docs;
use super::json;
use super::model::{Enum, Field, Item, Keywords, Presence, Rust, Struct};
use super::names::{camel, escape};
use super::plan::Plan;
use super::root;
use crate::definition::{Definition, Version};

/// The width of rustfmt's lines, and of the arguments of an attribute in them.
const WIDTH: usize = 100;
const ARGUMENTS: usize = 70;

/// Lines of code at one depth.
pub(crate) struct Code {
    text: String,
    depth: usize,
}

impl Code {
    pub(crate) fn new(depth: usize) -> Code {
        Code { text: String::new(), depth }
    }

    /// A line, or an empty one.
    pub(crate) fn line(&mut self, line: &str) {
        if !line.is_empty() {
            self.text.push_str(&"    ".repeat(self.depth));
            self.text.push_str(line);
        }
        self.text.push('\n');
    }

    pub(crate) fn inside(&mut self, write: impl FnOnce(&mut Code)) {
        self.depth += 1;
        write(self);
        self.depth -= 1;
    }

    /// An attribute with a list: as many items on a line as fit, in as many attributes as it takes.
    pub(crate) fn attribute(&mut self, before: &str, items: &[String], after: &str) {
        let room = ARGUMENTS.min(WIDTH - 4 * self.depth - before.len() - after.len());
        let mut line = String::new();
        for item in items {
            // rustfmt gives an argument that is too long lines of its own, unless it cannot read it.
            let is_plain = !(before.ends_with("extend(")
                || ["validation = ", "annotation("].iter().any(|key| item.starts_with(key)));
            if is_plain && 4 * self.depth + before.len() + item.len() + after.len() > WIDTH {
                if !line.is_empty() {
                    self.line(&format!("{before}{line}{after}"));
                    line.clear();
                }
                self.line(before);
                self.inside(|code| code.line(item));
                self.line(after);
                continue;
            }
            if !line.is_empty() && line.len() + 2 + item.len() > room {
                self.line(&format!("{before}{line}{after}"));
                line.clear();
            }
            if !line.is_empty() {
                line.push_str(", ");
            }
            line.push_str(item);
        }
        if !line.is_empty() {
            self.line(&format!("{before}{line}{after}"));
        }
    }

    fn derive(&mut self, traits: &[&str]) {
        let line = format!("#[derive({})]", traits.join(", "));
        if line.len() + 4 * self.depth < WIDTH - 2 {
            return self.line(&line);
        }
        self.line("#[derive(");
        self.inside(|code| code.line(&format!("{},", traits.join(", "))));
        self.line(")]");
    }

    /// A doc comment.
    fn comment(&mut self, description: Option<&str>) {
        for line in description.into_iter().flat_map(|description| docs(description).lines) {
            self.line(if line.is_empty() { "///".to_owned() } else { format!("/// {line}") }.as_str());
        }
    }

    /// The description itself, where the comment would not make it. It stands after the derive.
    fn exact(&mut self, description: Option<&str>) {
        if let Some(exact) = description.and_then(|description| docs(description).exact) {
            self.attribute("#[schemars(", &[format!("description = {}", json::string(&exact))], ")]");
        }
    }

    fn keywords(&mut self, keywords: &Keywords) {
        let items =
            keywords.iter().map(|(key, value)| format!("{} = {}", json::string(key), json::tokens(value)));
        self.attribute("#[schemars(extend(", &items.collect::<Vec<_>>(), "))]");
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// The code of one version.
pub(crate) fn version(definition: &Definition, version: &Version, plan: &Plan, depth: usize) -> String {
    let mut code = Code::new(depth);
    imports(&mut code, plan);
    for item in &plan.items {
        code.line("");
        match item {
            Item::Struct(described) => {
                let is_root = described.name == plan.root.name;
                let root = is_root.then(|| root::attributes(definition, version, &plan.root, described));
                structure(&mut code, described, root.as_deref());
            }
            Item::Enum(described) => enumeration(&mut code, described),
        }
    }
    if uses(plan, |rust| *rust == Rust::IntOrString) {
        code.line("");
        int_or_string(&mut code);
    }
    if all_keywords(plan).any(|(_, value)| !json::is_small(value)) {
        code.line("");
        for line in [
            "/// Schemas that are too long for the macro behind `extend`.",
            "fn json(text: &str) -> serde_json::Value {",
            "    serde_json::from_str(text).unwrap_or_default()",
            "}",
        ] {
            code.line(line);
        }
    }
    code.finish()
}

fn imports(code: &mut Code, plan: &Plan) {
    let has_rest = |item: &Item| matches!(item, Item::Struct(described) if described.rest.is_some());
    if uses(plan, |rust| matches!(rust, Rust::Dict(_))) || plan.items.iter().any(has_rest) {
        code.line("use std::collections::BTreeMap;");
        code.line("");
    }
    code.line("use kube::CustomResource;");
    code.line("use schemars::JsonSchema;");
    code.line("use serde::{Deserialize, Serialize};");
    let has_maps = uses(plan, |rust| *rust == Rust::JsonMap);
    let has_values = uses(plan, |rust| *rust == Rust::Json);
    match (has_maps, has_values) {
        (true, _) => code.line("use serde_json::{Map, Value};"),
        (false, true) => code.line("use serde_json::Value;"),
        (false, false) => {}
    }
}

fn uses(plan: &Plan, test: impl Fn(&Rust) -> bool) -> bool {
    plan.items.iter().any(|item| match item {
        Item::Enum(_) => false,
        Item::Struct(described) => {
            let rest = described.rest.iter().map(|(_, rust)| rust);
            described.fields.iter().map(|field| &field.rust).chain(rest).any(|rust| rust.any(&test))
        }
    })
}

fn all_keywords(plan: &Plan) -> impl Iterator<Item = &(String, serde_json::Value)> {
    plan.items.iter().flat_map(|item| match item {
        Item::Enum(described) => described.keywords.iter().chain(&[]).collect::<Vec<_>>(),
        Item::Struct(described) => {
            let fields = described.fields.iter().flat_map(|field| &field.keywords);
            described.keywords.iter().chain(fields).collect()
        }
    })
}

fn structure(code: &mut Code, described: &Struct, root: Option<&[String]>) {
    let has_starts = described.fields.iter().any(|field| matches!(field.presence, Presence::Default(_)));
    code.comment(described.description.as_deref());
    let mut derives: Vec<&str> = Vec::new();
    derives.extend(root.map(|_| "CustomResource"));
    derives.extend(["Clone", "Debug"]);
    derives.extend((described.is_default && !has_starts).then_some("Default"));
    derives.extend(["Deserialize", "PartialEq", "Serialize", "JsonSchema"]);
    code.derive(&derives);
    code.exact(described.description.as_deref());
    if let Some(root) = root {
        code.attribute("#[kube(", root, ")]");
    }
    let all_camel =
        described.fields.iter().any(|field| field.ident != field.json && camel(&field.ident) == field.json);
    if all_camel {
        code.line("#[serde(rename_all = \"camelCase\")]");
    }
    code.keywords(&described.keywords);
    if described.fields.is_empty() && described.rest.is_none() {
        code.line(&format!("pub struct {} {{}}", described.name));
        return;
    }
    code.line(&format!("pub struct {} {{", described.name));
    code.inside(|code| {
        described.fields.iter().for_each(|each| field(code, &described.name, each, all_camel));
        if let Some((ident, rust)) = &described.rest {
            code.line("/// What no other field holds.");
            code.line("#[serde(flatten)]");
            code.line("#[schemars(description = \"\")]");
            code.line(&format!("pub {}: BTreeMap<String, {}>,", escape(ident), rust.render()));
        }
    });
    code.line("}");
    if has_starts {
        starts(code, described);
    }
}

fn field(code: &mut Code, owner: &str, field: &Field, is_camel: bool) {
    code.comment(field.description.as_deref());
    code.exact(field.description.as_deref());
    let mut serde = Vec::new();
    let name = if is_camel { camel(&field.ident) } else { field.ident.clone() };
    if name != field.json {
        serde.push(format!("rename = {}", json::string(&field.json)));
    }
    match &field.presence {
        Presence::Optional => serde.push("skip_serializing_if = \"Option::is_none\"".to_owned()),
        Presence::Default(_) => serde.push(format!("default = \"{owner}::default_{}\"", field.ident)),
        Presence::Required | Presence::RequiredNullable => {}
    }
    code.attribute("#[serde(", &serde, ")]");
    if field.presence == Presence::RequiredNullable {
        code.line("#[schemars(required)]");
    }
    code.keywords(&field.keywords);
    code.line(&format!("pub {}: {},", escape(&field.ident), field.render_type()));
}

/// What fields start with.
fn starts(code: &mut Code, described: &Struct) {
    let defaults = described.fields.iter().filter_map(|field| match &field.presence {
        Presence::Default(expression) => Some((field, expression)),
        _ => None,
    });
    code.line("");
    code.line(&format!("impl {} {{", described.name));
    code.inside(|code| {
        for (index, (field, expression)) in defaults.enumerate() {
            if index > 0 {
                code.line("");
            }
            code.line(&format!("fn default_{}() -> {} {{", field.ident, field.render_type()));
            code.inside(|code| code.line(expression));
            code.line("}");
        }
    });
    code.line("}");
    if described.is_default {
        default_impl(code, described);
    }
}

fn default_impl(code: &mut Code, described: &Struct) {
    code.line("");
    code.line(&format!("impl Default for {} {{", described.name));
    code.inside(|code| {
        code.line("fn default() -> Self {");
        code.inside(|code| {
            code.line("Self {");
            code.inside(|code| {
                for field in &described.fields {
                    let ident = escape(&field.ident);
                    match &field.presence {
                        Presence::Default(_) => {
                            code.line(&format!("{ident}: Self::default_{}(),", field.ident))
                        }
                        _ => code.line(&format!("{ident}: Default::default(),")),
                    }
                }
                if let Some((ident, _)) = &described.rest {
                    code.line(&format!("{}: Default::default(),", escape(ident)));
                }
            });
            code.line("}");
        });
        code.line("}");
    });
    code.line("}");
}

fn enumeration(code: &mut Code, described: &Enum) {
    code.comment(described.description.as_deref());
    code.line("#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, JsonSchema)]");
    code.exact(described.description.as_deref());
    code.keywords(&described.keywords);
    code.line(&format!("pub enum {} {{", described.name));
    code.inside(|code| {
        for (ident, value) in &described.variants {
            if ident != value {
                code.line(&format!("#[serde(rename = {})]", json::string(value)));
            }
            code.line(&format!("{ident},"));
        }
    });
    code.line("}");
}

/// Ours rather than that of `k8s-openapi`, which holds 32 bits: a quantity of bytes is a larger number.
fn int_or_string(code: &mut Code) {
    let text = r#"/// A number or a string, such as a port or a quantity.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum IntOrString {
    Int(i64),
    String(String),
}

impl JsonSchema for IntOrString {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "IntOrString".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"x-kubernetes-int-or-string": true})
    }
}"#;
    text.lines().for_each(|line| code.line(line));
}
