//! How long a Job waits after pods that failed.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::Run;
use super::pods::{ended_at, is_failed, tries};
use crate::pod;

const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_mins(10);

/// How long to wait after so many failures in a row, the last of which was then.
fn left(failures: i32, last: Timestamp, now: Timestamp) -> SignedDuration {
    if failures <= 0 {
        return SignedDuration::ZERO;
    }
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(0).min(16);
    let wait = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    wait.saturating_sub(now.duration_since(last)).max(SignedDuration::ZERO)
}

impl Run<'_> {
    /// How long no pod is created because of those that failed since one succeeded.
    ///
    /// It is read from the pods, which stay until somebody deletes them: a controller that is started again goes
    /// on where the last one was.
    pub(super) fn backoff(&self) -> SignedDuration {
        let ended = |matches: &dyn Fn(&Pod) -> bool| -> Vec<Timestamp> {
            self.pods.iter().filter(|pod| matches(pod)).filter_map(|pod| ended_at(pod)).collect()
        };
        let succeeded = ended(&|pod| pod::phase(pod) == "Succeeded").into_iter().max();
        let mut failed = ended(&|pod| is_failed(self.spec, pod));
        failed.retain(|at| Some(*at) > succeeded);
        failed
            .iter()
            .max()
            .map_or(SignedDuration::ZERO, |last| left(crate::number::count(failed.len()), *last, self.now))
    }

    /// How long no pod is created in place of this one.
    pub(super) fn backoff_after(&self, pod: &Pod) -> SignedDuration {
        ended_at(pod).map_or(SignedDuration::ZERO, |last| left(tries(pod), last, self.now))
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;

    use super::*;
    use crate::job::pods::{FAILURES, IGNORED_FAILURES};

    #[test]
    fn the_wait_doubles_up_to_ten_minutes() {
        let last = Timestamp::from_second(1000).unwrap();
        let check = |failures, now, expected| {
            let left = left(failures, last, Timestamp::from_second(now).unwrap());
            assert_eq!(left, SignedDuration::from_secs(expected));
        };
        check(0, 1000, 0);
        check(1, 1000, 10);
        check(1, 1004, 6);
        check(2, 1000, 20);
        check(3, 1030, 10);
        check(30, 1000, 600);
        check(3, 9000, 0);
        check(i32::MAX, 1000, 600);
    }

    /// A number that wraps would be no wait at all, and pods without end.
    #[test]
    fn annotations_of_a_client_do_not_shorten_the_wait() {
        let mut pod = Pod::default();
        assert_eq!(tries(&pod), 1);
        for annotation in [FAILURES, IGNORED_FAILURES] {
            pod.annotations_mut().insert(annotation.to_owned(), i32::MAX.to_string());
            assert_eq!(tries(&pod), i32::MAX);
        }
    }
}
