//! Query parameters → options.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value;

use crate::field_error::{FieldError, Problem};
use crate::metadata;
use crate::patch::PatchType;
use crate::status::{GroupResource, Result, Status};

/// The decoded query of a request. The first of several equal names counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: &str) -> Query {
        let pairs = form_urlencoded::parse(query.as_bytes());
        Query(
            pairs
                .filter(|(name, _)| !name.is_empty())
                .map(|(n, v)| (n.into_owned(), v.into_owned()))
                .collect(),
        )
    }

    /// The query as it was understood.
    pub(crate) fn encode(&self) -> String {
        form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.0).finish()
    }

    /// The same without one parameter.
    pub(crate) fn without(&self, name: &str) -> Query {
        Query(self.0.iter().filter(|(other, _)| other != name).cloned().collect())
    }

    /// The value of a parameter; none if it is absent or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        found.filter(|value| !value.is_empty())
    }

    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether a parameter is given and not `0` or `false`: `watch`, `watch=1`, `watch=true`. Servers written in Go read
    /// it so; to take anything else for no would allow a list, and hand on a watch.
    pub(crate) fn flag(&self, name: &str) -> bool {
        let value = self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.to_ascii_lowercase());
        value.is_some_and(|value| !matches!(value.as_str(), "false" | "0"))
    }

    fn number(&self, name: &str) -> Result<Option<u64>> {
        let parse = |text: &str| {
            text.parse::<i64>().map(|n| u64::try_from(n).unwrap_or(0)).map_err(|_| {
                Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            })
        };
        self.get(name).map(parse).transpose()
    }
}

/// How a resourceVersion is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    Exact,
    NotOlderThan,
}

/// Options of list and watch.
#[derive(Clone, Debug)]
pub(crate) struct ListOptions {
    pub label_selector: Option<String>,
    pub field_selector: Option<String>,
    /// None: unset. Zero: any.
    pub resource_version: Option<u64>,
    pub version_match: Option<VersionMatch>,
    pub limit: Option<usize>,
    pub next: Option<String>,
    pub timeout_seconds: Option<u64>,
    pub bookmarks: bool,
    pub initial_events: Option<bool>,
}

impl ListOptions {
    pub(crate) fn parse(query: &Query, watch: bool) -> Result<ListOptions> {
        let version_match = match query.get("resourceVersionMatch") {
            None => None,
            Some("Exact") => Some(VersionMatch::Exact),
            Some("NotOlderThan") => Some(VersionMatch::NotOlderThan),
            Some(other) => {
                let allowed = vec!["Exact".to_owned(), "NotOlderThan".to_owned(), String::new()];
                let problem = Problem::NotSupported(other.into(), allowed);
                return Err(invalid_options("ListOptions", FieldError::new("resourceVersionMatch", problem)));
            }
        };
        let options = ListOptions {
            label_selector: query.get("labelSelector").map(str::to_owned),
            field_selector: query.get("fieldSelector").map(str::to_owned),
            resource_version: resource_version(query)?,
            version_match,
            limit: query
                .number("limit")?
                .map(|n| usize::try_from(n).unwrap_or(usize::MAX))
                .filter(|n| *n > 0),
            next: query.get("continue").map(str::to_owned),
            timeout_seconds: query.number("timeoutSeconds")?,
            bookmarks: query.flag("allowWatchBookmarks"),
            initial_events: query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents")),
        };
        match options.problem(watch) {
            Some(problem) => Err(invalid_options("ListOptions", problem)),
            None => Ok(options),
        }
    }

    /// Combinations that make no sense.
    fn problem(&self, watch: bool) -> Option<FieldError> {
        let forbidden = |field: &str, why: &str| Some(FieldError::forbidden(field, why));
        if watch {
            if self.initial_events.is_some() && self.version_match != Some(VersionMatch::NotOlderThan) {
                return forbidden(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                );
            }
            if self.version_match.is_some() && self.initial_events.is_none() {
                return forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
            return None;
        }
        if self.initial_events.is_some() {
            return forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        self.version_match?;
        if self.resource_version.is_none() {
            return forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        }
        if self.next.is_some() {
            return forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden when continue is provided",
            );
        }
        if self.version_match == Some(VersionMatch::Exact) && self.resource_version == Some(0) {
            return forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
        None
    }
}

fn resource_version(query: &Query) -> Result<Option<u64>> {
    let parse = |text: &str| {
        text.parse::<u64>().map_err(|_| {
            Status::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: it is not a number"
            ))
        })
    };
    query.get("resourceVersion").map(parse).transpose()
}

/// The resourceVersion of a GET.
pub(crate) fn get_resource_version(query: &Query) -> Result<Option<u64>> {
    resource_version(query)
}

/// What happens with fields that the kind does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// Options of writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    pub dry_run: bool,
    pub field_validation: FieldValidation,
    pub field_manager: Option<String>,
    /// Of server-side apply: take fields from other managers.
    pub force: bool,
}

impl WriteOptions {
    /// `kind` is the options' kind in error messages: `CreateOptions`.
    pub(crate) fn parse(query: &Query, kind: &str) -> Result<WriteOptions> {
        let dry_run = dry_run(query.all("dryRun").map(Cow::Borrowed), kind)?;
        let field_validation = match query.get("fieldValidation") {
            None => FieldValidation::default(),
            Some("Ignore") => FieldValidation::Ignore,
            Some("Warn") => FieldValidation::Warn,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let allowed = vec![String::new(), "Ignore".into(), "Strict".into(), "Warn".into()];
                let problem = Problem::NotSupported(other.into(), allowed);
                return Err(invalid_options(kind, FieldError::new("fieldValidation", problem)));
            }
        };
        let field_manager = query.get("fieldManager").map(str::to_owned);
        if let Some(manager) = &field_manager {
            let problems = metadata::validate_field_manager(manager, "fieldManager");
            if !problems.is_empty() {
                return Err(Status::invalid(options_kind(kind), "", &problems));
            }
        }
        Ok(WriteOptions { dry_run, field_validation, field_manager, force: false })
    }

    /// The options of a PATCH.
    pub(crate) fn parse_patch(query: &Query, patch: PatchType) -> Result<WriteOptions> {
        let kind = "PatchOptions";
        let given = query.get("force").is_some();
        if patch != PatchType::Apply {
            if given {
                let problem = FieldError::forbidden("force", "may not be specified for non-apply patch");
                return Err(invalid_options(kind, problem));
            }
            return WriteOptions::parse(query, kind);
        }
        if query.get("fieldManager").is_none() {
            let problem = FieldError::required("fieldManager", "is required for apply patch");
            return Err(invalid_options(kind, problem));
        }
        let options = WriteOptions::parse(query, kind)?;
        Ok(WriteOptions { force: given && query.flag("force"), ..options })
    }
}

fn dry_run<'a>(values: impl Iterator<Item = Cow<'a, str>>, kind: &str) -> Result<bool> {
    let mut dry = false;
    for value in values.filter(|value| !value.is_empty()) {
        if value != "All" {
            let problem =
                Problem::NotSupported(Value::String(value.into_owned()).into(), vec!["All".to_owned()]);
            return Err(invalid_options(kind, FieldError::new("dryRun", problem)));
        }
        dry = true;
    }
    Ok(dry)
}

/// What becomes of an object's dependents when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// Options of deletes: in the query, or in the body.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period_seconds: Option<u64>,
    pub propagation: Option<Propagation>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    pub(crate) fn from_query(query: &Query) -> Result<DeleteOptions> {
        Ok(DeleteOptions {
            dry_run: dry_run(query.all("dryRun").map(Cow::Borrowed), "DeleteOptions")?,
            grace_period_seconds: query.number("gracePeriodSeconds")?,
            propagation: query.get("propagationPolicy").map(propagation).transpose()?,
            ..DeleteOptions::default()
        })
    }

    /// Reads a decoded `DeleteOptions` object.
    pub(crate) fn from_body(body: &Value) -> Result<DeleteOptions> {
        let values = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let grace = match body.get("gracePeriodSeconds").and_then(Value::as_i64) {
            Some(seconds) if seconds < 0 => Some(1),
            seconds => seconds.map(i64::unsigned_abs),
        };
        let orphan = body.get("orphanDependents").and_then(Value::as_bool);
        let policy = body.get("propagationPolicy").and_then(Value::as_str);
        if orphan.is_some() && policy.is_some() {
            let problem = FieldError::invalid(
                "propagationPolicy",
                policy.unwrap_or_default(),
                "orphanDependents and deletionPropagation cannot be both set",
            );
            return Err(invalid_options("DeleteOptions", problem));
        }
        let orphan = orphan.map(|o| if o { Propagation::Orphan } else { Propagation::Background });
        let precondition = |name: &str| body["preconditions"][name].as_str().map(str::to_owned);
        Ok(DeleteOptions {
            dry_run: dry_run(values.map(Cow::Borrowed), "DeleteOptions")?,
            grace_period_seconds: grace,
            propagation: policy.map(propagation).transpose()?.or(orphan),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
        })
    }
}

fn propagation(text: &str) -> Result<Propagation> {
    Ok(match text {
        "Background" => Propagation::Background,
        "Foreground" => Propagation::Foreground,
        "Orphan" => Propagation::Orphan,
        other => {
            let allowed = ["Background", "Foreground", "Orphan"].map(str::to_owned).to_vec();
            let problem = Problem::NotSupported(other.into(), allowed);
            return Err(invalid_options("DeleteOptions", FieldError::new("propagationPolicy", problem)));
        }
    })
}

fn invalid_options(kind: &str, problem: FieldError) -> Status {
    Status::invalid(options_kind(kind), "", &[problem])
}

fn options_kind(kind: &str) -> GroupResource<'_> {
    GroupResource { group: "meta.k8s.io", resource: kind }
}

/// A duration as Go writes it: `1m30s`, `500ms`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        total += number.parse::<f64>().ok()?
            * match unit {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = after;
    }
    Duration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_take_the_spellings_that_curl_users_write() {
        for (query, expect) in [
            ("watch=true", true),
            ("watch=1", true),
            ("watch=yes", true),
            ("&watch", true),
            ("watch=no", true),
            ("watch=", true),
            ("watch=False", false),
            ("watch=0&watch=1", false),
            ("watch=false", false),
            ("watch=0", false),
            ("limit=5", false),
        ] {
            assert_eq!(Query::parse(query).flag("watch"), expect, "{query}");
        }
    }

    #[test]
    fn options_that_make_no_sense_are_refused_with_the_field() {
        let list = |query: &str, watch| ListOptions::parse(&Query::parse(query), watch).unwrap_err();
        assert_eq!(list("limit=x", false).code, 400);
        assert_eq!(list("resourceVersion=x", false).code, 400);
        assert!(
            list("resourceVersionMatch=Exact", false).message.contains("resourceVersionMatch: Forbidden")
        );
        assert!(list("sendInitialEvents=true", true).message.contains("NotOlderThan"));
        let dry = WriteOptions::parse(&Query::parse("dryRun=Some"), "CreateOptions").unwrap_err();
        assert_eq!(
            dry.message,
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: \"Some\": supported \
             values: \"All\""
        );
    }
}
