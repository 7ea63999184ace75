//! The rules that many kinds share, as methods of a place.

use serde_json::Value;
use setpoint_kinds::Quantity;

use super::at::{At, same};
use super::formats::{self, NOT_NEGATIVE, PORT_RANGE};
use crate::metadata;
use crate::metadata::names;

pub(super) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

impl At<'_, '_> {
    /// A number that is there is at least 0.
    pub(super) fn non_negative(&self) {
        if self.number().is_some_and(|number| number < 0) {
            self.invalid(NOT_NEGATIVE);
        }
    }

    /// A number is above 0; one that is not there counts as 0.
    pub(super) fn positive(&self) {
        if self.number().unwrap_or(0) <= 0 {
            self.invalid_number("must be greater than zero");
        }
    }

    /// There is a text; whether there was.
    pub(super) fn has_text(&self) -> bool {
        let there = !self.text().is_empty();
        if !there {
            self.required("");
        }
        there
    }

    /// The text is one of these; it must be there.
    pub(super) fn one_of(&self, allowed: &[&str]) {
        if self.text().is_empty() {
            self.required("");
        } else {
            self.one_of_if_set(allowed);
        }
    }

    /// A text that is there, even an empty one, is one of these.
    pub(super) fn one_of_if_set(&self, allowed: &[&str]) {
        if self.exists() && !allowed.contains(&self.text()) {
            self.not_supported(allowed);
        }
    }

    /// The text has the form that `form` asks for.
    pub(super) fn has_form(&self, form: fn(&str) -> Vec<String>) {
        for problem in form(self.text()) {
            self.invalid_text(problem);
        }
    }

    /// The same for a text that may be missing or empty.
    pub(super) fn has_form_if_set(&self, form: fn(&str) -> Vec<String>) {
        if !self.text().is_empty() {
            self.has_form(form);
        }
    }

    /// There is a text, and it has a form.
    pub(super) fn is_named(&self, form: fn(&str) -> Vec<String>) {
        if self.has_text() {
            self.has_form(form);
        }
    }

    /// The name of a signer of certificates: `example.com/name`.
    pub(super) fn signer_name(&self) {
        if !self.has_text() {
            return;
        }
        let Some((domain, path)) = self.text().split_once('/').filter(|(_, path)| !path.contains('/')) else {
            let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            return self.invalid(detail);
        };
        const LONGEST_DOMAIN: usize = 253;
        if domain.len() > LONGEST_DOMAIN {
            self.too_long(LONGEST_DOMAIN);
        }
        // Only the first part that is wrong is told.
        let wrong = |part: &str, form: fn(&str) -> Vec<String>| {
            let mut found = part.split('.').map(|label| (label, form(label)));
            if let Some((label, problems)) = found.find(|(_, problems)| !problems.is_empty()) {
                for problem in problems {
                    self.invalid_as(part, format!("validating label {label:?}: {problem}"));
                }
            }
        };
        wrong(domain, names::dns1123_label);
        if !domain.contains('.') {
            self.invalid_as(domain, "should be a domain with at least two segments separated by dots");
        }
        wrong(path, names::dns1123_subdomain);
        const LONGEST: usize = 253 + 1 + 63 + 1 + 253;
        if self.text().len() > LONGEST {
            self.too_long(LONGEST);
        }
    }

    /// The value is what it was.
    pub(super) fn immutable(&self, old: &Value) {
        if !same(self.value(), old) {
            self.invalid("field is immutable");
        }
    }

    /// The same as newer rules say it: without the value.
    pub(super) fn immutable_hidden(&self, old: &Value) {
        if !same(self.value(), old) {
            self.invalid_as(Value::Null, "field is immutable");
        }
    }

    pub(super) fn labels(&self) {
        for (key, value) in self.entries() {
            for problem in names::label_key(key) {
                self.invalid_as(key, problem);
            }
            for problem in names::label_value(value.text()) {
                self.invalid_as(value.text(), problem);
            }
        }
    }

    pub(super) fn annotations(&self) {
        if self.exists() {
            self.errors().extend(metadata::validate_annotations(self.value(), &self.path()));
        }
    }

    /// The number of a port, where one must be given.
    pub(super) fn port_number(&self) {
        let number = self.number().unwrap_or(0);
        if !(1..=65535).contains(&number) {
            self.invalid_number(PORT_RANGE);
        }
    }

    /// The number or the name of a port.
    pub(super) fn port(&self) {
        match self.value() {
            Value::String(_) => self.has_form(formats::port_name),
            _ => self.port_number(),
        }
    }

    /// Number or percentage, not below 0.
    pub(super) fn number_or_percent(&self) {
        match self.value() {
            Value::String(_) => self.has_form(formats::percent),
            _ => self.non_negative(),
        }
    }

    /// A percentage is at most 100%.
    pub(super) fn at_most_100_percent(&self) {
        if formats::percent_value(self.text()).is_some_and(|percent| percent > 100) {
            self.invalid("must not be greater than 100%");
        }
    }

    /// The number, or that of the percentage.
    pub(super) fn number_of_percent(&self) -> i64 {
        formats::percent_value(self.text()).or_else(|| self.number()).unwrap_or(0)
    }

    /// A user or group id that is there is one.
    pub(super) fn user_id(&self) {
        if self.number().is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id)) {
            self.invalid(formats::ID_RANGE);
        }
    }

    /// The permission bits of a file.
    pub(super) fn file_mode(&self) {
        if self.number().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
            self.invalid("must be a number between 0 and 0777 (octal), both inclusive");
        }
    }

    pub(super) fn quantity(&self) -> Quantity {
        Quantity::of(self.text())
    }

    /// No `..` in a path.
    pub(super) fn no_backsteps(&self) {
        if self.text().split('/').any(|part| part == "..") {
            self.invalid_text("must not contain '..'");
        }
    }

    /// A path below the current folder.
    pub(super) fn descending_path(&self) {
        if self.text().starts_with('/') {
            self.invalid_text("must be a relative path");
        }
        self.no_backsteps();
    }

    /// A path below the current folder whose first name is not one that volumes use themselves.
    pub(super) fn unreserved_path(&self) {
        self.descending_path();
        if self.text().starts_with("..") && !self.text().starts_with("../") {
            self.invalid_text("must not start with '..'");
        }
    }

    /// An address; `old` are those that were there before, which are taken as they are.
    pub(super) fn ip_address(&self, old: &[&str]) -> bool {
        let problems = if old.contains(&self.text()) { Vec::new() } else { formats::ip(self.text()) };
        let fine = problems.is_empty();
        problems.into_iter().for_each(|problem| self.invalid_text(problem));
        fine
    }

    pub(super) fn cidr(&self, old: &[&str]) {
        if !old.contains(&self.text()) {
            self.has_form(formats::cidr);
        }
    }
}

/// A selector of labels, and what it selects.
impl At<'_, '_> {
    pub(super) fn label_selector(&self) {
        if !self.exists() {
            return;
        }
        self.field("matchLabels").labels();
        for requirement in self.field("matchExpressions").items() {
            let values = requirement.field("values");
            match requirement.field("operator").text() {
                "In" | "NotIn" if values.is_empty() => {
                    values.required("must be specified when `operator` is 'In' or 'NotIn'");
                }
                "Exists" | "DoesNotExist" if !values.is_empty() => {
                    values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                _ => requirement.field("operator").invalid_text("not a valid selector operator"),
            }
            requirement.field("key").has_form(names::label_key);
            for value in values.items() {
                value.has_form(names::label_value);
            }
        }
    }

    /// Whether there are requirements.
    pub(super) fn selects_all(&self) -> bool {
        self.field("matchLabels").is_empty() && self.field("matchExpressions").is_empty()
    }

    /// Whether the selector takes these labels; none when it is not a selector at all.
    pub(super) fn selects(&self, labels: &Value) -> Option<bool> {
        if !self.exists() {
            return Some(false);
        }
        let mut selects = true;
        for (key, value) in self.field("matchLabels").entries() {
            if !(names::label_key(key).is_empty() && names::label_value(value.text()).is_empty()) {
                return None;
            }
            selects &= labels[key] == *value.value();
        }
        for requirement in self.field("matchExpressions").items() {
            let found = &labels[requirement.field("key").text()];
            let values = requirement.field("values");
            let listed = || values.texts().any(|value| found == value);
            if !names::label_key(requirement.field("key").text()).is_empty() {
                return None;
            }
            selects &= match (requirement.field("operator").text(), values.is_empty()) {
                ("In", false) => listed(),
                ("NotIn", false) => !listed(),
                ("Exists", true) => !found.is_null(),
                ("DoesNotExist", true) => found.is_null(),
                _ => return None,
            };
        }
        Some(selects)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::at::Errors;
    use super::*;

    #[test]
    fn selectors_take_what_they_say() {
        let labels = json!({"app": "web", "tier": "front"});
        let check = |selector: Value, expect: Option<bool>| {
            let errors = Errors::default();
            assert_eq!(At::root(&selector, &errors).selects(&labels), expect, "{selector}");
        };
        check(json!({"matchLabels": {"app": "web"}}), Some(true));
        check(json!({"matchLabels": {"app": "db"}}), Some(false));
        check(
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}),
            Some(true),
        );
        check(
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}),
            Some(false),
        );
        check(json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}), Some(true));
        check(json!({"matchExpressions": [{"key": "x", "operator": "Like"}]}), None);
        check(json!({}), Some(true));
        check(json!(null), Some(false));
    }
}
