// Placeholder until the real file lands.
use crate::resource::Resource; use crate::routes::Route; use crate::options::Query; use setpoint_env::Env;
pub(crate) struct Metrics; pub(crate) struct RunningWatch; pub(crate) struct Started;
impl RunningWatch { pub(crate) fn event(&self) {} }
impl Started { pub(crate) fn finish(self, _s: http::StatusCode) {} }
impl Metrics { pub(crate) fn new(_e: &Env) -> Metrics { Metrics } pub(crate) fn watch_started(&self, _r: &Resource) -> RunningWatch { RunningWatch }
pub(crate) fn request_started(&self, _m: &http::Method, _r: Option<&Route>, _q: &Query) -> Started { Started }
pub(crate) fn respond(&self, _s: &crate::storage::Stats) -> http::Response<crate::response::Body> { crate::response::respond(http::StatusCode::OK, "text/plain", "") } }
