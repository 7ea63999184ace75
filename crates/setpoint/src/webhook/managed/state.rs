//! What is in the Secret, and what has to follow from it.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use setpoint_env::{Env, Later};

use super::super::CertificateError;
use super::super::certificates::{Pair, parse};
use super::authority::{Certificate, issue, make_authority};

/// How long whoever calls may take to learn of a new authority before it signs anything, and how long replicas may take to
/// show a new certificate before the old authority goes.
pub(super) const OVERLAP: Duration = Duration::from_secs(3600);

/// How long certificates live, and for whom they are.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) names: Vec<String>,
    pub(super) authority_life: Duration,
    pub(super) certificate_life: Duration,
}

/// All certificates of a webhook server, the same for all of its replicas.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct State {
    /// Whom to trust, the newest first.
    authorities: Vec<Certificate>,
    /// The key of the newest.
    authority_key: String,
    /// What the server shows.
    certificate: Certificate,
    key: String,
}

impl State {
    /// The first of all.
    pub(super) fn new(env: &Env, terms: &Terms) -> Result<State, CertificateError> {
        let (authority, authority_key) = make_authority(env, terms.authority_life)?;
        let life = terms.certificate_life;
        let (certificate, key) = issue(env, &authority, &authority_key, &terms.names, life)?;
        Ok(State { authorities: vec![authority], authority_key, certificate, key })
    }

    /// What a Secret holds; an error if that is no use.
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Result<State, CertificateError> {
        let text = |field: &str| {
            let bytes = data.get(field).map(|bytes| bytes.0.clone()).unwrap_or_default();
            String::from_utf8(bytes).map_err(|_| invalid(format!("{field} is no text")))
        };
        let state = State {
            authorities: Certificate::parse_all(&text("ca.crt")?)?,
            authority_key: text("ca.key")?,
            certificate: Certificate::parse(&text("tls.crt")?)?,
            key: text("tls.key")?,
        };
        if !state.authorities.iter().any(|authority| state.certificate.is_signed_by(authority)) {
            return Err(invalid("no authority in ca.crt has signed tls.crt"));
        }
        if !state.authorities.first().is_some_and(|newest| newest.has_key(&state.authority_key)) {
            return Err(invalid("ca.key is not the key of the first authority in ca.crt"));
        }
        parse(&state.pair())?;
        Ok(state)
    }

    /// What a Secret shall hold.
    pub(super) fn data(&self) -> BTreeMap<String, ByteString> {
        let fields = [
            ("ca.crt", self.bundle()),
            ("ca.key", self.authority_key.clone()),
            ("tls.crt", self.certificate.pem.clone()),
            ("tls.key", self.key.clone()),
        ];
        fields.into_iter().map(|(field, text)| (field.to_owned(), ByteString(text.into_bytes()))).collect()
    }

    /// What the server shows.
    pub(super) fn pair(&self) -> Pair {
        Pair { certificate: self.certificate.pem.clone().into_bytes(), key: self.key.clone().into_bytes() }
    }

    /// Whom callers have to trust.
    pub(super) fn bundle(&self) -> String {
        self.authorities.iter().map(|authority| authority.pem.as_str()).collect()
    }

    /// What it has to become by now; none if it is good as it is.
    pub(super) fn next(&self, env: &Env, terms: &Terms) -> Result<Option<State>, CertificateError> {
        let now = env.now();
        let mut next = self.clone();
        next.add_authority(env, terms, now)?;
        next.renew(env, terms, now)?;
        next.drop_authorities(now);
        Ok((next != *self).then_some(next))
    }

    /// A new authority, trusted beside the old one before it signs.
    fn add_authority(&mut self, env: &Env, terms: &Terms, now: Timestamp) -> Result<(), CertificateError> {
        if self.authorities.first().is_none_or(|newest| newest.is_due(now)) {
            let (authority, key) = make_authority(env, terms.authority_life)?;
            self.authorities.insert(0, authority);
            self.authority_key = key;
        }
        Ok(())
    }

    /// A new certificate, as soon as callers trust who signs it.
    fn renew(&mut self, env: &Env, terms: &Terms, now: Timestamp) -> Result<(), CertificateError> {
        let Some(newest) = self.authorities.first() else { return Ok(()) };
        let is_good = self.certificate.is_signed_by(newest)
            && !self.certificate.is_due(now)
            && terms.names.iter().all(|name| self.certificate.names.contains(name));
        let is_only = self.authorities.iter().skip(1).all(|old| old.is_over(now));
        let is_trusted = is_only || now >= newest.since.later(OVERLAP);
        // What is over helps nobody: better one that only some trust yet.
        if !is_good && (is_trusted || self.certificate.is_over(now)) {
            let mut names = terms.names.clone();
            if !self.certificate.is_due(now) {
                // While replicas of two versions run, the names of both are good; the old ones go with the certificate.
                names.extend(self.certificate.names.iter().cloned());
                names.sort_unstable();
                names.dedup();
            }
            let life = terms.certificate_life;
            (self.certificate, self.key) = issue(env, newest, &self.authority_key, &names, life)?;
        }
        Ok(())
    }

    /// Old authorities go when every replica shows a certificate of the newest.
    fn drop_authorities(&mut self, now: Timestamp) {
        let Some(newest) = self.authorities.first() else { return };
        let is_shown = self.certificate.is_signed_by(newest) && now >= self.certificate.since.later(OVERLAP);
        let mut is_newest = true;
        self.authorities
            .retain(|authority| std::mem::take(&mut is_newest) || (!is_shown && !authority.is_over(now)));
    }
}

fn invalid(why: impl Into<String>) -> CertificateError {
    CertificateError::Invalid(why.into())
}
