//! A new operator project that compiles, tests and runs at once.
//!
//! Its files are in `templates/`: real files about a kind `Widget`, whose names are replaced. What depends on the
//! options stands between `{% if … %}` and `{% endif %}`.

mod names;
mod owned;
mod template;

/// The template of the kind: compiled here too, so that the first CRD is made from it, as every later one is.
#[path = "../templates/project/src/api.rs"]
#[expect(unreachable_pub, reason = "it is public in the projects")]
mod api;

use std::path::{Path, PathBuf};

use minijinja::context;
use serde_json::Value;
use setpoint::{Permissions, Verb};

pub use self::names::{default_kind, plural};
pub use self::owned::Owned;
use self::template::Template;
use crate::definition::{Definition, Version};
use crate::error::Error;
use crate::files::File;
use crate::sample::{Extent, change, sample};
use crate::types::{Types, names as rust_names};
use crate::{crd, rbac, yaml};

/// An operator project to generate.
///
/// ```
/// # fn main() -> Result<(), setpoint_codegen::Error> {
/// use setpoint_codegen::Project;
///
/// let files = Project::new("my-app")?.group("example.org").render()?;
/// assert!(files.iter().any(|file| file.path.ends_with("src/controller.rs")));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Project {
    name: String,
    group: Option<String>,
    kind: Option<String>,
    version: Option<String>,
    is_cluster_scoped: bool,
    owned: Option<Vec<Owned>>,
    has_webhook: bool,
    has_cert_manager: bool,
    is_extension_server: bool,
    is_nested: bool,
    crates: Crates,
    from: Option<From>,
}

/// The source of Setpoint's crates in a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Crates {
    /// A registry.
    Published,
    /// A checkout, in this folder.
    Checkout(PathBuf),
}

/// The CRD that a project is made for.
#[derive(Clone, Debug)]
struct From {
    definition: Definition,
    text: String,
    has_sample: bool,
}

/// Everything that is decided.
struct Facts<'a> {
    project: &'a Project,
    group: String,
    kind: String,
    version: String,
    plural: String,
    is_cluster_scoped: bool,
    owned: Vec<Owned>,
    /// Whether a condition can be written into the status.
    has_conditions: bool,
}

impl Project {
    /// A project of this name, for a kind named after it. The name becomes that of a package, a namespace and a
    /// service account.
    pub fn new(name: impl Into<String>) -> Result<Project, Error> {
        let name = name.into();
        names::check_project(&name)?;
        Ok(Project {
            name,
            group: None,
            kind: None,
            version: None,
            is_cluster_scoped: false,
            owned: None,
            has_webhook: false,
            has_cert_manager: false,
            is_extension_server: false,
            is_nested: false,
            crates: Crates::Published,
            from: None,
        })
    }

    /// The API group of the kind; `example.com` by default.
    pub fn group(mut self, group: impl Into<String>) -> Project {
        self.group = Some(group.into());
        self
    }

    /// The kind; derived from the project's name by default.
    pub fn kind(mut self, kind: impl Into<String>) -> Project {
        self.kind = Some(kind.into());
        self
    }

    /// The version of the kind; by default `v1alpha1`, or the storage version of the CRD.
    pub fn version(mut self, version: impl Into<String>) -> Project {
        self.version = Some(version.into());
        self
    }

    /// Makes the kind cluster-scoped.
    pub fn cluster_scoped(mut self) -> Project {
        self.is_cluster_scoped = true;
        self
    }

    /// Lets each object own one of these. By default a ConfigMap; with [`Project::from_crd`] nothing.
    pub fn owns(mut self, owned: Owned) -> Project {
        let all = self.owned.get_or_insert_default();
        if !all.contains(&owned) {
            all.push(owned);
        }
        self
    }

    /// Adds admission webhooks.
    pub fn webhook(mut self) -> Project {
        self.has_webhook = true;
        self
    }

    /// Leaves the certificates of the webhooks to cert-manager. Unless it is called, the operator makes them.
    pub fn cert_manager(mut self) -> Project {
        self.has_cert_manager = true;
        self
    }

    /// Makes an extension API server for the kind instead of an operator.
    pub fn extension_server(mut self) -> Project {
        self.is_extension_server = true;
        self
    }

    /// Says that a folder above has a `Cargo.toml` with a workspace that the project does not belong to.
    pub fn nested(mut self) -> Project {
        self.is_nested = true;
        self
    }

    /// The source of Setpoint's crates.
    pub fn crates(mut self, crates: Crates) -> Project {
        self.crates = crates;
        self
    }

    /// Generates the project for an existing CRD with the YAML `text`. `has_sample` says whether a server accepts
    /// [`Project::sample`] as an object of the kind: patterns and CEL rules may forbid it.
    pub fn from_crd(mut self, definition: Definition, text: impl Into<String>, has_sample: bool) -> Project {
        self.from = Some(From { definition, text: text.into(), has_sample });
        self
    }

    /// An object of a CRD, in the version that a project for it would use.
    pub fn sample(definition: &Definition, version: Option<&str>) -> Result<Value, Error> {
        Ok(sample(definition, find_version(definition, version)?, Extent::Required))
    }

    fn facts(&self) -> Result<Facts<'_>, Error> {
        match &self.from {
            Some(from) => self.facts_of_crd(&from.definition),
            None => self.own_facts(),
        }
    }

    fn own_facts(&self) -> Result<Facts<'_>, Error> {
        let group = self.group.clone().unwrap_or_else(|| "example.com".to_owned());
        names::check_group(&group)?;
        let kind = self.kind.clone().unwrap_or_else(|| default_kind(&self.name));
        names::check_kind(&kind)?;
        let version = self.version.clone().unwrap_or_else(|| "v1alpha1".to_owned());
        names::check_version(&version)?;
        Ok(Facts {
            project: self,
            group,
            plural: plural(&kind),
            kind,
            version,
            is_cluster_scoped: self.is_cluster_scoped,
            owned: self.owned.clone().unwrap_or_else(|| vec![Owned::ConfigMap]),
            has_conditions: true,
        })
    }

    fn facts_of_crd(&self, definition: &Definition) -> Result<Facts<'_>, Error> {
        let says = |what: &str, wanted: &Option<String>, is: &str| match wanted {
            Some(wanted) if wanted != is => {
                Err(Error::new(format!("--{what}"), format!("is {wanted:?}, but the CRD says {is:?}")))
            }
            _ => Ok(()),
        };
        says("group", &self.group, &definition.group)?;
        says("kind", &self.kind, &definition.names.kind)?;
        if self.is_cluster_scoped && definition.is_namespaced {
            return Err(Error::new("--cluster-scoped", "the objects of this CRD are in namespaces"));
        }
        let version = find_version(definition, self.version.as_deref())?;
        Ok(Facts {
            project: self,
            group: definition.group.clone(),
            kind: definition.names.kind.clone(),
            version: version.name.clone(),
            plural: definition.names.plural.clone(),
            is_cluster_scoped: !definition.is_namespaced,
            owned: self.owned.clone().unwrap_or_default(),
            has_conditions: has_conditions(version),
        })
    }

    /// All files, with paths relative to the project's folder.
    pub fn render(&self) -> Result<Vec<File>, Error> {
        let facts = self.facts()?;
        let template = Template::new(&facts.words())?;
        let values = facts.values(&template);
        if self.is_extension_server {
            return self.render_server(&facts, &template, &values);
        }
        let mut files = Vec::new();
        for (path, text) in template::OPERATOR.iter().filter(|(path, _)| facts.wants(path)) {
            files.push(File::new(template.names(path), template.render(path, text, &values)?));
        }
        let crd_path = format!("config/crd/{}.{}.yaml", facts.plural, facts.group);
        let sample_path = format!("config/samples/{}.yaml", facts.kind.to_lowercase());
        match &self.from {
            None => {
                files.push(File::new("src/api.rs", facts.types(&template)));
                files.push(File::new(crd_path, facts.crd(&template)?));
                files
                    .push(File::new(sample_path, template.render("sample.yaml", template::SAMPLE, &values)?));
            }
            Some(from) => {
                let types =
                    Types::new().version(&facts.version).render(std::slice::from_ref(&from.definition))?;
                files.push(File::new("src/api.rs", types));
                files.push(File::new(crd_path, from.text.clone()));
                files.push(File::new(sample_path, from.sample(&facts.version)?));
            }
        }
        let roles = rbac::manifests(&self.name, &format!("{}-system", self.name), &facts.permissions())?;
        files.push(File::new("config/rbac/rbac.yaml", roles));
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// The files of an extension server.
    fn render_server(
        &self,
        facts: &Facts<'_>,
        template: &Template,
        values: &minijinja::Value,
    ) -> Result<Vec<File>, Error> {
        let refused = [
            (
                self.from.is_some(),
                "--from-crd",
                "the kinds of an extension server have no CRD: its types are Rust's",
            ),
            (self.has_webhook, "--webhook", "an extension server checks its objects itself"),
            (self.owned.is_some(), "--owns", "an extension server has no controller"),
        ];
        if let Some((_, option, why)) = refused.into_iter().find(|(is_wanted, ..)| *is_wanted) {
            return Err(Error::new(option, why));
        }
        let mut files = vec![File::new("src/api.rs", facts.scoped(template.names(template::SERVED_TYPES)))];
        for (path, text) in template::EXTENSION_SERVER {
            files.push(File::new(template.names(path), template.render(path, text, values)?));
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }
}

impl From {
    fn sample(&self, version: &str) -> Result<String, Error> {
        let text = yaml::render(&Project::sample(&self.definition, Some(version))?)?;
        let note = "# Made from the schema. A server would refuse it: fill in what the schema's patterns and rules want.\n";
        Ok(if self.has_sample { text } else { format!("{note}{text}") })
    }
}

/// The version that is stored, or the one that was asked for.
fn find_version<'a>(definition: &'a Definition, wanted: Option<&str>) -> Result<&'a Version, Error> {
    let is_it = |version: &&Version| wanted.map_or(version.storage, |wanted| version.name == wanted);
    definition.versions.iter().find(is_it).ok_or_else(|| {
        let names: Vec<&str> = definition.versions.iter().map(|version| version.name.as_str()).collect();
        let problem = match wanted {
            Some(wanted) => format!("there is no version {wanted:?}"),
            None => "no version is stored".to_owned(),
        };
        Error::new("spec.versions", format!("{problem}; there are: {}", names.join(", ")))
    })
}

/// Whether the status has a list of conditions that ours fit in, and can be written by itself.
fn has_conditions(version: &Version) -> bool {
    let schema = Value::Object(version.schema().clone());
    let items = schema.pointer("/properties/status/properties/conditions/items/properties");
    let has = |name: &str| items.is_some_and(|items| items.get(name).is_some());
    version.subresources.status.is_some()
        && ["type", "status", "reason", "message"].iter().all(|name| has(name))
}

impl Facts<'_> {
    /// Whether the project has this file.
    fn wants(&self, path: &str) -> bool {
        match path {
            "src/children.rs" => !self.owned.is_empty(),
            // Without a sample nothing can be created, and without any write nothing can be seen.
            "tests/rbac.rs" | "tests/explore.rs" => self.is_seen(),
            "config/webhook/certificate.yaml" => self.project.has_webhook && self.project.has_cert_manager,
            "config/webhook/rbac.yaml" => self.project.has_webhook && !self.project.has_cert_manager,
            path => self.project.has_webhook || !path.contains("webhook"),
        }
    }

    /// Whether there is an object to create, and something is written then.
    fn is_seen(&self) -> bool {
        self.has_sample() && (self.has_conditions || !self.owned.is_empty())
    }

    /// Another value for a field of the sample's spec, as the exploration test sets it.
    fn change(&self) -> Option<minijinja::Value> {
        let from = self.project.from.as_ref()?;
        let version = find_version(&from.definition, Some(&self.version)).ok()?;
        let (field, value) = change(version, &sample(&from.definition, version, Extent::Required))?;
        Some(context! { field => format!("{field:?}"), value => value.to_string() })
    }

    fn has_sample(&self) -> bool {
        self.project.from.as_ref().is_none_or(|from| from.has_sample)
    }

    /// What the templates ask for.
    fn values(&self, template: &Template) -> minijinja::Value {
        let from = self.project.from.as_ref();
        let any = |is: fn(Owned) -> bool| self.owned.iter().any(|&owned| is(owned));
        // Without a condition there is nothing to say of it.
        let available = |owned: Owned| owned.available().filter(|_| self.has_conditions);
        let owned = self.owned.iter().map(|&owned| {
            let (is_available, available_status) = available(owned).unzip();
            context! {
                kind => owned.kind(),
                module => owned.module(),
                name => owned.name(),
                function => template.names(owned.function().trim_end()),
                is_available => is_available.map(str::trim_end),
                available_status => available_status,
            }
        });
        context! {
            owned => owned.collect::<minijinja::Value>(),
            // Of those that are owned, some.
            message => any(Owned::has_message),
            pods => any(Owned::has_pods),
            workload => any(|owned| owned.has_pods() || owned == Owned::Service),
            awaited => self.owned.iter().any(|&owned| available(owned).is_some()),
            plain => from.is_none(),
            sample => self.has_sample(),
            change => self.change(),
            explored => self.is_seen(),
            conditions => self.has_conditions,
            cluster_scoped => self.is_cluster_scoped,
            webhook => self.project.has_webhook,
            cert_manager => self.project.has_webhook && self.project.has_cert_manager,
            nested => self.project.is_nested,
            checkout => match &self.project.crates {
                Crates::Checkout(folder) => Some(folder.display().to_string()),
                Crates::Published => None,
            },
            crates => context! {
                setpoint => self.dependency("setpoint", ""),
                setpoint_schemars => self.dependency("setpoint", "schemars"),
                setpoint_apiserver => self.dependency("setpoint-apiserver", ""),
                setpoint_codegen => self.dependency("setpoint-codegen", ""),
                setpoint_sim => self.dependency("setpoint-sim", ""),
            },
        }
    }

    /// The words of the templates, and what they become.
    fn words(&self) -> Vec<(&'static str, String)> {
        vec![
            ("widget-operator", self.project.name.clone()),
            ("widget_operator", self.project.name.replace('-', "_")),
            ("Widget", self.kind.clone()),
            ("widgets", self.plural.clone()),
            ("widget", self.kind.to_lowercase()),
            // Not example.com: descriptions of Kubernetes have that.
            ("acme.example", self.group.clone()),
            ("v1alpha1", self.version.clone()),
            // Last, for code only: a kind may have the name of a type that every program knows.
            ("api::Widget", format!("api::{}", rust_names::root_name(&self.kind))),
        ]
    }

    /// One of our crates in a `Cargo.toml`, with a feature unless that is empty.
    fn dependency(&self, name: &str, feature: &str) -> String {
        let source = match &self.project.crates {
            Crates::Published if feature.is_empty() => return format!("{:?}", env!("CARGO_PKG_VERSION")),
            Crates::Published => format!("version = {:?}", env!("CARGO_PKG_VERSION")),
            Crates::Checkout(folder) => {
                format!("path = {:?}", folder.join("crates").join(name).display().to_string())
            }
        };
        let features = if feature.is_empty() { String::new() } else { format!(", features = [{feature:?}]") };
        format!("{{ {source}{features} }}")
    }

    fn types(&self, template: &Template) -> String {
        self.scoped(template.names(template::TYPES))
    }

    /// The code of a kind whose objects are in namespaces, or not.
    fn scoped(&self, text: String) -> String {
        if self.is_cluster_scoped { text.replacen("    namespaced,\n", "", 1) } else { text }
    }

    /// What `setpoint gen crd` will make of those types.
    fn crd(&self, template: &Template) -> Result<String, Error> {
        let mut crd =
            serde_json::to_value(crd::of::<api::Widget>()?).map_err(|error| Error::new("", error))?;
        replace(&mut crd, &|text| template.names(text));
        crd["spec"]["scope"] = if self.is_cluster_scoped { "Cluster" } else { "Namespaced" }.into();
        // In the order of the type, which is that of later ones too.
        let crd: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition =
            serde_json::from_value(crd).map_err(|error| Error::new("", error))?;
        yaml::render(&crd)
    }

    /// What the builder in `src/controller.rs` declares.
    fn permissions(&self) -> Permissions {
        let mut needs = Permissions::default();
        needs.add(&self.group, &self.plural, &[Verb::List, Verb::Watch]);
        if self.has_conditions {
            needs.add(&self.group, &format!("{}/status", self.plural), &[Verb::Patch]);
        }
        for owned in &self.owned {
            let verbs = [Verb::List, Verb::Watch, Verb::Create, Verb::Patch];
            needs.add(owned.group(), &owned.plural(), &verbs);
            needs.add("events.k8s.io", "events", &[Verb::Create, Verb::Patch]);
        }
        needs.lease = Some((format!("{}-system", self.project.name), self.project.name.clone()));
        needs
    }
}

/// Replaces every text in a value, keys excepted.
fn replace(value: &mut Value, with: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = with(text),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, with)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, with)),
        _ => {}
    }
}

/// The checkout of Setpoint that contains a folder.
pub fn checkout_of(folder: &Path) -> Option<PathBuf> {
    let is_root = |folder: &&Path| {
        let manifest = std::fs::read_to_string(folder.join("crates/setpoint/Cargo.toml"));
        manifest.is_ok_and(|text| text.lines().any(|line| line == "name = \"setpoint\""))
    };
    folder.ancestors().find(is_root).map(Path::to_owned)
}
