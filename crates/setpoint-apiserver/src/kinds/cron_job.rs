//! Cron jobs.

use jiff::tz::TimeZoneDatabase;
use serde_json::Value;

use super::at::At;
use super::fill::{default as set, default_text, part, part_or_new};
use super::pod::template;
use super::{cron, job};
use crate::strategy::Part;

pub(super) fn default(cron_job: &mut Value) {
    let Some(fields) = cron_job.as_object_mut() else { return };
    let spec = part_or_new(fields, "spec");
    default_text(spec, "concurrencyPolicy", "Allow");
    set(spec, "suspend", false);
    set(spec, "successfulJobsHistoryLimit", 3);
    set(spec, "failedJobsHistoryLimit", 1);
    if let Some(job) = part(spec, "jobTemplate").and_then(|template| part(template, "spec")) {
        template::default_in(job);
        job::default_failure_policy(job);
    }
}

pub(super) fn validate(cron_job: &At, old: Option<&Value>, part: Part) {
    if part == Part::Status {
        return;
    }
    let spec = cron_job.field("spec");
    let schedule = spec.field("schedule");
    if !schedule.is_empty() {
        let had_zone =
            old.is_some_and(|old| old["spec"]["schedule"].as_str().unwrap_or_default().contains("TZ"));
        check_schedule(&schedule, had_zone, spec.field("timeZone").exists());
    }
    spec.field("startingDeadlineSeconds").non_negative();
    if old.is_none_or(|old| old["spec"]["timeZone"] != *spec.field("timeZone").value()) {
        time_zone(&spec.field("timeZone"));
    }
    spec.field("concurrencyPolicy").one_of(&["Allow", "Forbid", "Replace"]);
    let template = spec.field("jobTemplate");
    let job = template.field("spec");
    job::validate_spec(&job);
    if job.field("selector").exists() {
        job.field("selector").invalid("`selector` will be auto-generated");
    }
    if job.field("manualSelector").is_true() {
        job.field("manualSelector").not_supported_as(true, &["nil", "false"]);
    }
    spec.field("successfulJobsHistoryLimit").non_negative();
    spec.field("failedJobsHistoryLimit").non_negative();
    let metadata = cron_job.field("metadata");
    if old.is_none() && metadata.field("name").text().len() > 52 {
        metadata.field("name").invalid("must be no more than 52 characters");
    }
    if schedule.is_empty() {
        // This rule is younger than the others, and comes last.
        schedule.required("");
    }
}

fn check_schedule(schedule: &At, had_zone: bool, has_zone_field: bool) {
    if let Err(error) = cron::check(schedule.text()) {
        schedule.invalid(error);
    }
    if schedule.text().contains("TZ") {
        if !had_zone {
            schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
        } else if has_zone_field {
            schedule.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule");
        }
    }
}

fn time_zone(zone: &At) {
    if !zone.exists() {
        return;
    }
    if zone.is_empty() {
        return zone.invalid("timeZone must be nil or non-empty string");
    }
    let name = zone.text();
    let is_part = |part: &str| {
        let fits = (1..=14).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte));
        fits && part != "." && part != ".." && !part.starts_with('-')
    };
    if !name.split('/').all(is_part) {
        return zone.invalid(format!("unknown time zone {name}"));
    }
    if name.eq_ignore_ascii_case("Local") {
        zone.invalid("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    }
    if name != "Local" && !is_time_zone(name) {
        zone.invalid(format!("unknown time zone {name}"));
    }
}

/// Whether the time zone database that is part of the program has this zone, spelled so.
pub(super) fn is_time_zone(name: &str) -> bool {
    let found = TimeZoneDatabase::bundled().get(name);
    name == "UTC" || found.is_ok_and(|zone| zone.iana_name() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_zones_are_those_of_the_database() {
        for known in ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"] {
            assert!(is_time_zone(known), "{known}");
        }
        for unknown in ["europe/berlin", "Mars/Phobos", "", "Local"] {
            assert!(!is_time_zone(unknown), "{unknown}");
        }
    }
}
