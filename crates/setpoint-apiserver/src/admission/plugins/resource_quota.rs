//! `ResourceQuota`: what is written is charged to the quotas of its namespace, by compare-and-swap on their status.

use std::sync::Arc;

use serde_json::Value;
use setpoint_kinds::Quantity;

use super::super::{Attributes, Operation};
use crate::contention;
use crate::object;
use crate::quota::{Amounts, Counted};
use crate::resource::{Registry, Resource};
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{Action, ListQuery, Record};

/// What a write has taken from quotas. A write that is not stored gives it back.
#[must_use = "a write that is not stored gives back what it took"]
#[derive(Debug, Default)]
pub(crate) struct Charge {
    namespace: String,
    taken: Vec<Taken>,
}

/// From one quota.
#[derive(Debug)]
struct Taken {
    quota: String,
    uid: Value,
    amounts: Amounts,
}

impl Charge {
    /// Gives everything back. What cannot be given back is found by the controller that recomputes quotas.
    pub(crate) async fn give_back(self, core: &Core) {
        for Taken { quota, uid, amounts } in self.taken {
            let change = |record: &Record| {
                let mut quota = object::decode(&record.value, record.revision);
                if quota["metadata"]["uid"] != uid {
                    return None;
                }
                let mut used = Amounts::of(&quota["status"]["used"]);
                for (name, amount) in amounts.iter() {
                    if let Some(known) = used.get(name) {
                        used.set(name, known.saturating_sub(amount).max(Quantity::ZERO));
                    }
                }
                quota["status"]["used"] = used.to_json();
                Some(put(&quota))
            };
            let key = quotas().key(Some(&self.namespace), &quota);
            if let Err(error) = contention::swap(core, key, change).await {
                tracing::warn!(
                    quota,
                    error = error.message,
                    "cannot give back the quota charge of a failed write; it stays for now"
                );
            }
        }
    }
}

fn quotas() -> &'static Arc<Resource> {
    Registry::built_in().expect("", "v1", "resourcequotas")
}

fn put(quota: &Value) -> Action {
    Action::Put { value: object::encode(quota), ttl: None }
}

/// One write, as quotas see it.
struct Write<'a> {
    attributes: &'a Attributes<'a>,
    counted: Counted,
    object: &'a Value,
    /// What the object uses, and what is new about that.
    usage: Amounts,
    increase: Amounts,
}

/// Charges an object that is about to be written to every quota that counts it, or refuses it.
pub(crate) async fn charge(core: &Core, attributes: &Attributes<'_>, object: &Value) -> Result<Charge> {
    let request = attributes.request;
    let Some(namespace) = request.namespace.as_deref() else { return Ok(Charge::default()) };
    let query = ListQuery::all(quotas().collection()).under(format!("{namespace}/"));
    let page = core.storage.list(&query).await?;
    if page.records.is_empty() {
        return Ok(Charge::default());
    }
    let is_create = attributes.operation == Operation::Create;
    let counted = Counted::of(request.resource.group(), request.resource.plural());
    let changes = |counted: &Counted| {
        counted.is_changed_by(is_create, attributes.subresource(), attributes.old, object)
    };
    let Some(counted) = counted.filter(changes) else { return Ok(Charge::default()) };
    let now = core.env.now();
    let usage = counted.usage(object, now);
    let increase = match attributes.old.filter(|_| !is_create) {
        Some(old) => usage.above(&counted.usage(old, now)),
        None => usage.clone(),
    };
    let write = Write { attributes, counted, object, usage, increase };
    let found: Vec<Value> =
        page.records.iter().map(|record| object::decode(&record.value, record.revision)).collect();
    let matching: Vec<&Value> = found.iter().filter(|quota| write.concerns(quota)).collect();
    // All that can be said without taking anything is said first.
    for quota in &matching {
        write.check(quota)?;
    }
    for quota in &matching {
        write.fits(quota)?;
    }
    let mut charge = Charge { namespace: namespace.to_owned(), taken: Vec::new() };
    if attributes.dry_run {
        return Ok(charge);
    }
    for quota in matching {
        match write.take(core, namespace, quota).await {
            Ok(taken) => charge.taken.extend(taken),
            Err(status) => {
                charge.give_back(core).await;
                return Err(status);
            }
        }
    }
    Ok(charge)
}

impl Write<'_> {
    /// Whether a quota counts the object.
    fn concerns(&self, quota: &Value) -> bool {
        let hard = Amounts::of(&quota["status"]["hard"]);
        !self.counted.tracked(&hard).is_empty() && self.counted.is_in_scope(quota, self.object)
    }

    fn forbidden(&self, why: &str) -> Status {
        self.attributes.forbidden(Some(self.object), why)
    }

    /// Whether the object says what the quota wants to know, and the quota knows its own usage.
    fn check(&self, quota: &Value) -> Result<()> {
        let name = object::name(quota);
        let hard = Amounts::of(&quota["status"]["hard"]);
        let tracked = self.counted.tracked(&hard);
        if let Some(why) = self.counted.missing(&tracked, self.object) {
            return Err(self.forbidden(&format!("failed quota: {name}: {why}")));
        }
        let used = Amounts::of(&quota["status"]["used"]);
        if tracked.iter().any(|resource| used.get(resource).is_none()) {
            let resources = tracked.join(",");
            let why = format!("status unknown for quota: {name}, resources: {resources}");
            return Err(self.forbidden(&why));
        }
        let negative = self.usage.iter().filter(|(_, amount)| *amount < Quantity::ZERO);
        let negative: Vec<&str> = negative.map(|(resource, _)| resource).collect();
        if !negative.is_empty() {
            let why = format!("quota usage is negative for resource(s): {}", negative.join(","));
            return Err(self.forbidden(&why));
        }
        Ok(())
    }

    /// What the quota is charged for. What it did not count before is new to it as a whole.
    fn wanted(&self, quota: &Value) -> Amounts {
        let old = self.attributes.old.filter(|_| self.attributes.operation != Operation::Create);
        let was_counted = old.is_none_or(|old| self.counted.is_in_scope(quota, old));
        let amounts = if was_counted { &self.increase } else { &self.usage };
        amounts.within(&Amounts::of(&quota["status"]["hard"])).without_zeros()
    }

    /// What the quota has in use once the write is stored, or why it cannot be. What a status says is not refused.
    fn fits(&self, quota: &Value) -> Result<Amounts> {
        let wanted = self.wanted(quota);
        let (hard, used) = (Amounts::of(&quota["status"]["hard"]), Amounts::of(&quota["status"]["used"]));
        let mut after = used.clone();
        after.add(&wanted);
        let is_above = |name: &str| hard.get(name).is_some_and(|most| after.get(name) > Some(most));
        let exceeded: Amounts =
            wanted.iter().filter(|(name, _)| is_above(name)).map(|(name, a)| (name.to_owned(), a)).collect();
        if exceeded.is_empty() || self.attributes.subresource() == "status" {
            return Ok(after);
        }
        Err(self.forbidden(&format!(
            "exceeded quota: {}, requested: {exceeded}, used: {}, limited: {}",
            object::name(quota),
            used.within(&exceeded),
            hard.within(&exceeded)
        )))
    }

    /// Charges one quota as it is now, which may be another state than the one that was checked.
    async fn take(&self, core: &Core, namespace: &str, quota: &Value) -> Result<Option<Taken>> {
        let name = object::name(quota);
        let mut outcome = Ok(None);
        let change = |record: &Record| {
            let mut quota = object::decode(&record.value, record.revision);
            let wanted = self.wanted(&quota);
            if !self.concerns(&quota) || wanted.is_empty() {
                outcome = Ok(None);
                return None;
            }
            match self.check(&quota).and_then(|()| self.fits(&quota)) {
                Ok(used) => {
                    quota["status"]["used"] = used.to_json();
                    let uid = quota["metadata"]["uid"].clone();
                    outcome = Ok(Some(Taken { quota: name.to_owned(), uid, amounts: wanted }));
                    Some(put(&quota))
                }
                Err(status) => {
                    outcome = Err(status);
                    None
                }
            }
        };
        contention::swap(core, quotas().key(Some(namespace), name), change).await?;
        outcome
    }
}
