//! When an indexed job has succeeded before all its indexes have.

use super::super::at::At;

const LONGEST: usize = 64 * 1024;

pub(super) fn validate(spec: &At) {
    let policy = spec.field("successPolicy");
    if !policy.exists() {
        return;
    }
    if spec.field("completionMode").text() != "Indexed" {
        return policy.invalid("requires indexed completion mode");
    }
    let rules = policy.field("rules");
    if rules.is_empty() {
        rules.required("at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > 20 {
        rules.too_many(20);
    }
    let completions = spec.field("completions").number().unwrap_or(0);
    rules.items().for_each(|rule| validate_rule(&rule, completions));
}

fn validate_rule(rule: &At, completions: i64) {
    let (count, indexes) = (rule.field("succeededCount"), rule.field("succeededIndexes"));
    if !count.exists() && !indexes.exists() {
        rule.required("at least one of succeededCount or succeededIndexes must be specified");
    }
    let mut total = 0;
    if indexes.exists() {
        if indexes.text().len() > LONGEST {
            indexes.too_long(LONGEST);
        }
        match count_indexes(indexes.text(), completions) {
            Ok(found) => total = found,
            Err(error) => indexes.invalid(format!("error parsing succeededIndexes: {error}")),
        }
    }
    if let Some(number) = count.number() {
        count.non_negative();
        if number > completions {
            count.invalid(format!(
                "must be less than or equal to {completions} (the number of specified completions)"
            ));
        }
        if indexes.exists() && number > total {
            count.invalid(format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            ));
        }
    }
}

/// How many indexes `1,3-5` are.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let mut total = 0;
    let mut last: Option<i64> = None;
    for interval in text.split(',') {
        let (first, end) = parse_interval(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn parse_interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let ends: Vec<&str> = text.split('-').collect();
    if ends.len() > 2 {
        return Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts separated \
             by '-'"
        ));
    }
    let number = |text: &str| {
        let number: i64 =
            text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number) }
    };
    let first = number(ends[0])?;
    let Some(end) = ends.get(1) else { return Ok((first, first)) };
    let end = number(end)?;
    if first >= end {
        return Err(format!("non-increasing order, previous: {first}, current: {end}"));
    }
    Ok((first, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted() {
        assert_eq!(count_indexes("1,3-5", 10), Ok(4));
        assert_eq!(count_indexes("", 10), Ok(0));
        assert!(count_indexes("5-3", 10).is_err());
        assert!(count_indexes("1,1", 10).is_err());
        assert!(count_indexes("10", 10).is_err());
        assert!(count_indexes("a", 10).is_err());
    }
}
