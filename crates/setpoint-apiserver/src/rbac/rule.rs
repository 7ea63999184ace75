//! One rule of a role.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};

use crate::authorize::Attributes;

/// A rule allows some verbs on some resources, or on some paths of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    #[serde(deserialize_with = "or_default")]
    pub verbs: Vec<String>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

/// Go writes empty lists as `null` here and there.
pub(super) fn or_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Rule {
    /// Everything.
    pub(crate) fn full() -> [Rule; 2] {
        let star = || vec!["*".to_owned()];
        [
            Rule { verbs: star(), api_groups: star(), resources: star(), ..Rule::default() },
            Rule { verbs: star(), non_resource_urls: star(), ..Rule::default() },
        ]
    }

    /// Whether the rule allows the request.
    pub(crate) fn allows(&self, request: &Attributes) -> bool {
        if !has(&self.verbs, &request.verb) {
            return false;
        }
        if let Some(path) = &request.path {
            return self.non_resource_urls.iter().any(|url| url_covers(url, path));
        }
        has(&self.api_groups, &request.group)
            && self.resources.iter().any(|item| resource_matches(item, request))
            && (self.resource_names.is_empty() || self.resource_names.contains(&request.name))
    }

    /// The smallest rules that this one is made of.
    fn atoms(&self) -> impl Iterator<Item = Atom<'_>> {
        let names: Vec<Option<&str>> = match self.resource_names.as_slice() {
            [] => vec![None],
            names => names.iter().map(|name| Some(name.as_str())).collect(),
        };
        let resources = self.api_groups.iter().flat_map(move |group| {
            let names = names.clone();
            self.resources.iter().flat_map(move |resource| {
                let names = names.clone();
                self.verbs.iter().flat_map(move |verb| {
                    names.clone().into_iter().map(move |name| Atom::Resource { group, resource, name, verb })
                })
            })
        });
        let urls = self.non_resource_urls.iter().flat_map(move |url| {
            self.verbs.iter().map(move |verb| Atom::Url { url: url.as_str(), verb: verb.as_str() })
        });
        resources.chain(urls)
    }

    fn covers(&self, atom: &Atom<'_>) -> bool {
        match *atom {
            Atom::Url { url, verb } => {
                has(&self.verbs, verb)
                    && self.resource_names.is_empty()
                    && self.non_resource_urls.iter().any(|own| url_covers(own, url))
            }
            Atom::Resource { group, resource, name, verb } => {
                let any_of = resource.split_once('/').map(|(_, part)| format!("*/{part}"));
                has(&self.verbs, verb)
                    && has(&self.api_groups, group)
                    && (has(&self.resources, resource)
                        || any_of.is_some_and(|any| self.resources.contains(&any)))
                    && (self.resource_names.is_empty()
                        || name.is_some_and(|name| self.resource_names.iter().any(|own| own == name)))
            }
        }
    }
}

fn resource_matches(item: &str, request: &Attributes) -> bool {
    let (resource, part) = (request.resource.as_str(), request.subresource.as_str());
    if item == "*" {
        return true;
    }
    if part.is_empty() {
        return item == resource;
    }
    match item.split_once('/') {
        Some((of, item_part)) => item_part == part && (of == "*" || of == resource),
        None => false,
    }
}

/// `/healthz/*` covers `/healthz/etcd`; `*` covers everything.
fn url_covers(owner: &str, path: &str) -> bool {
    owner == path || owner.ends_with('*') && path.starts_with(owner.trim_end_matches('*'))
}

/// One verb on one resource, or on one path.
#[derive(Clone, Copy, Debug)]
enum Atom<'a> {
    Resource { group: &'a str, resource: &'a str, name: Option<&'a str>, verb: &'a str },
    Url { url: &'a str, verb: &'a str },
}

/// A rule is a product of four lists: a short text can ask for a very long check.
const MOST_ATOMS: usize = 20_000;

/// What somebody lacks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Nothing: what they have covers everything.
    Nothing,
    /// These, in the words of kube-apiserver.
    Rules(Vec<String>),
    /// The rules ask for too much to be compared.
    TooMany,
}

/// What of `wanted` is not covered by `owned`.
pub(super) fn missing(owned: &[Rule], wanted: &[Rule]) -> Missing {
    let mut atoms = 0;
    // By what they have in common, the verbs that are missing.
    let mut resources: BTreeMap<(&str, &str, Option<&str>), Vec<&str>> = BTreeMap::new();
    let mut texts = BTreeSet::new();
    for atom in wanted.iter().flat_map(Rule::atoms) {
        atoms += 1;
        if atoms > MOST_ATOMS {
            return Missing::TooMany;
        }
        if owned.iter().any(|rule| rule.covers(&atom)) {
            continue;
        }
        match atom {
            Atom::Resource { group, resource, name, verb } => {
                resources.entry((group, resource, name)).or_default().push(verb);
            }
            Atom::Url { url, verb } => {
                texts.insert(format!("{{NonResourceURLs:[{url:?}], Verbs:[{verb:?}]}}"));
            }
        }
    }
    for ((group, resource, name), verbs) in resources {
        let name = name.map(|name| format!(", ResourceNames:[{name:?}]")).unwrap_or_default();
        let verbs = quoted(&verbs);
        texts.insert(format!("{{APIGroups:[{group:?}], Resources:[{resource:?}]{name}, Verbs:{verbs}}}"));
    }
    if texts.is_empty() { Missing::Nothing } else { Missing::Rules(texts.into_iter().collect()) }
}

/// Go's `%q` of a list: `["get" "list"]`.
pub(crate) fn quoted<T: AsRef<str>>(texts: &[T]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{:?}", text.as_ref())).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &str, groups: &str, resources: &str, names: &str) -> Rule {
        let list = |text: &str| text.split(',').filter(|s| *s != "-").map(str::to_owned).collect();
        Rule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: list(names),
            non_resource_urls: Vec::new(),
        }
    }

    fn urls(verbs: &str, paths: &str) -> Rule {
        let paths = paths.split(',').map(str::to_owned).collect();
        Rule { non_resource_urls: paths, ..rule(verbs, "-", "-", "-") }
    }

    fn asks(text: &str) -> Attributes {
        let mut parts = text.split(' ').map(|part| if part == "-" { "" } else { part }.to_owned());
        let mut next = || parts.next().unwrap_or_default();
        let (verb, group, resource, subresource, name) = (next(), next(), next(), next(), next());
        Attributes { verb, group, resource, subresource, name, ..Attributes::default() }
    }

    #[test]
    fn a_rule_allows_what_all_of_its_lists_name() {
        let check = |rule: &Rule, request: &str, expect: bool| {
            assert_eq!(rule.allows(&asks(request)), expect, "{rule:?} {request}");
        };
        let pods = rule("get,list", ",apps", "pods,*/scale", "-");
        check(&pods, "get - pods", true);
        check(&pods, "delete - pods", false);
        check(&pods, "get apps deployments scale", true);
        check(&pods, "get apps deployments", false);
        check(&pods, "get - pods log", false);
        check(&pods, "get batch pods", false);
        let named = rule("*", "*", "*", "web");
        check(&named, "delete - pods - web", true);
        check(&named, "delete - pods - other", false);
        check(&named, "create - pods", false);
        check(&rule("get", "*", "*", "-"), "get - pods log", true);
    }

    #[test]
    fn a_rule_about_paths_knows_prefixes_and_says_nothing_about_resources() {
        let health = urls("get", "/healthz,/apis/*");
        let path =
            |path: &str| Attributes { verb: "get".into(), path: Some(path.into()), ..Attributes::default() };
        assert!(health.allows(&path("/healthz")) && health.allows(&path("/apis/apps")));
        assert!(!health.allows(&path("/healthz/ping")) && !health.allows(&path("/apis")));
        assert!(!urls("*", "*").allows(&asks("get - pods")));
        assert!(!rule("*", "*", "*", "-").allows(&path("/healthz")));
    }

    #[test]
    fn what_is_missing_is_told_by_resource() {
        let owned = [rule("get,list", "", "pods", "-"), rule("*", "apps", "*/scale", "-")];
        let all = [rule("get", "", "pods", "web"), rule("update", "apps", "deployments/scale", "-")];
        assert_eq!(missing(&owned, &all), Missing::Nothing);
        let more = [rule("list,watch,delete", "", "pods", "-"), urls("get", "/metrics")];
        assert_eq!(
            missing(&owned, &more),
            Missing::Rules(vec![
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["watch" "delete"]}"#.into(),
                r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#.into(),
            ])
        );
        let named = [rule("get", "", "secrets", "a")];
        assert_ne!(missing(&named, &[rule("get", "", "secrets", "-")]), Missing::Nothing);
    }

    #[test]
    fn a_small_rule_with_a_huge_product_is_not_worked_through() {
        let many: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let rule = Rule { verbs: many.clone(), api_groups: many.clone(), resources: many, ..Rule::default() };
        assert_eq!(missing(&[], &[rule]), Missing::TooMany);
    }
}
