use std::time::Duration;

use futures::FutureExt;

use super::*;

fn event(n: u64) -> LoopEvent {
    LoopEvent::QueueShutDown { queue: n.to_string().as_str().into() }
}

fn numbers(stream: &mut Subscription) -> Vec<u64> {
    std::iter::from_fn(|| stream.try_next()).map(|fact| fact.number).collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_built_or_kept_while_nobody_listens() {
    let facts = Facts::new(Env::seeded(1));
    facts.tell(|| unreachable!("nobody listens"));
    let mut stream = facts.subscribe();
    facts.tell(|| event(1));
    assert_eq!(stream.try_next().unwrap().event, event(1));
    drop(stream);
    facts.tell(|| unreachable!("nobody listens any more"));
    assert_eq!(facts.subscribe().try_next(), None, "what was told before is not kept");
}

#[tokio::test(start_paused = true)]
async fn every_listener_gets_every_fact_in_order_with_its_time() {
    let facts = Facts::new(Env::seeded(1));
    let (mut one, mut other) = (facts.subscribe(), facts.subscribe());
    facts.tell(|| event(1));
    tokio::time::advance(Duration::from_secs(3)).await;
    facts.tell(|| event(2));
    let told: Vec<_> = std::iter::from_fn(|| one.try_next()).collect();
    assert_eq!(told.iter().map(|fact| &fact.event).collect::<Vec<_>>(), [&event(1), &event(2)]);
    assert_eq!(told[1].at.duration_since(told[0].at).as_secs(), 3);
    assert_eq!(std::iter::from_fn(|| other.try_next()).collect::<Vec<_>>(), told);
}

#[tokio::test(start_paused = true)]
async fn a_slow_listener_learns_how_many_it_missed_and_goes_on() {
    let facts = Facts::with_bounds(Env::seeded(1), 4, usize::MAX);
    let mut slow = facts.subscribe();
    let mut quick = facts.subscribe();
    for n in 1..=10 {
        facts.tell(|| event(n));
        assert_eq!(numbers(&mut quick), [n]);
    }
    let missed = slow.try_next().unwrap();
    assert_eq!((&missed.event, missed.number), (&LoopEvent::Missed { count: 6 }, 6));
    assert_eq!(numbers(&mut slow), [7, 8, 9, 10]);
    assert_eq!((slow.missed(), quick.missed()), (6, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_bounded_in_bytes_too() {
    let size = event(1).size();
    let facts = Facts::with_bounds(Env::seeded(1), usize::MAX, 3 * size);
    let mut slow = facts.subscribe();
    (1..=9).for_each(|n| facts.tell(|| event(n)));
    assert_eq!(slow.try_next().unwrap().event, LoopEvent::Missed { count: 6 });
    assert_eq!(numbers(&mut slow), [7, 8, 9]);
    let large = LoopEvent::QueueShutDown { queue: "x".repeat(10 * size).as_str().into() };
    facts.tell(|| large.clone());
    assert_eq!(slow.try_next().unwrap().event, large, "the last one is always kept");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_listener_is_woken_and_its_stream_ends_with_those_who_tell() {
    let facts = Facts::new(Env::seeded(1));
    let mut stream = facts.subscribe();
    assert!(stream.next().now_or_never().is_none());
    let listening = Env::seeded(1).spawn(async move {
        let mut heard = 0;
        while stream.next().await.is_some() {
            heard += 1;
        }
        heard
    });
    for n in 0..3 {
        tokio::task::yield_now().await;
        facts.tell(|| event(n));
    }
    drop(facts);
    assert_eq!(listening.await.unwrap(), 3);
}

#[test]
fn facts_are_read_as_they_are_written() {
    let reasons: crate::Reasons = crate::Reason::new(crate::Cause::Retry).into();
    let cache = CacheName { resource: "pods".into(), namespace: Some("default".into()), id: 3 };
    let events = [
        LoopEvent::Reflector {
            cache: cache.clone(),
            state: ReflectorState::Failed {
                error: "no answer".into(),
                pause: Duration::from_millis(800),
                lists_next: true,
            },
        },
        LoopEvent::ReconcileStarted {
            controller: "web".into(),
            key: "default/web".into(),
            id: 7,
            reasons,
            retries: 1,
        },
        LoopEvent::Held {
            queue: "web".into(),
            key: "default/web".into(),
            until: vec![Awaited { cache, version: "12".into(), object: None }],
            limit: Duration::from_secs(30),
        },
    ];
    for event in events {
        let fact = Fact { number: 1, at: Timestamp::UNIX_EPOCH, event };
        let text = serde_json::to_string(&fact).unwrap();
        assert_eq!(serde_json::from_str::<Fact>(&text).unwrap(), fact, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_can_be_asked_what_its_keys_do_as_long_as_it_lives() {
    use crate::workqueue::Phase;
    let facts = Facts::new(Env::seeded(1));
    let queue = crate::WorkQueue::builder().facts("web", &facts).build();
    queue.add("default/taken");
    let taken = queue.get().await.unwrap();
    queue.add("default/taken");
    queue.add_because("default/ready", crate::Reason::new(crate::Cause::Trigger));
    queue.add_after("default/later", Duration::from_secs(60));
    tokio::time::advance(Duration::from_secs(20)).await;
    let state = facts.state(10).queues.remove(0);
    assert_eq!(&*state.queue, "web");
    assert_eq!((state.ready, state.processing, state.waiting, state.held, state.dirty), (1, 1, 1, 0, 1));
    let find = |key: &str| state.keys.iter().find(|found| found.key == key.into()).unwrap();
    assert_eq!(find("default/taken").phase, Phase::Dirty);
    assert_eq!(find("default/ready").reasons.to_string(), "trigger");
    assert_eq!(find("default/later").due_in, Some(Duration::from_secs(40)));
    assert_eq!(find("default/later").reasons.to_string(), "requeue");
    assert_eq!(facts.state(0).queues[0].keys.len(), 0, "no more keys than were asked for");
    assert!(!facts.is_heard(), "to ask is not to listen");
    taken.done();
    drop(queue);
    assert!(facts.state(10).queues.is_empty());
}
