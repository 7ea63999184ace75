//! The authorities of clients' certificates, where they may change while a server runs.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};

/// Checks the certificates of clients, against the authorities of the moment. A client may have none.
#[derive(Debug)]
pub(crate) struct ClientAuthorities {
    provider: Arc<CryptoProvider>,
    current: RwLock<Option<Arc<dyn ClientCertVerifier>>>,
}

impl ClientAuthorities {
    pub(crate) fn new(authorities: &[CertificateDer<'static>]) -> ClientAuthorities {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ClientAuthorities { provider, current: RwLock::new(verifier(authorities)) }
    }

    /// From now on it is these. Connections that are there stay.
    pub(crate) fn set(&self, authorities: &[CertificateDer<'static>]) {
        *self.current.write() = verifier(authorities);
    }
}

/// Who checks certificates of these authorities; none if none of them can be used.
pub(crate) fn verifier(authorities: &[CertificateDer<'static>]) -> Option<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(authorities.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    (added > 0).then(|| builder.build().ok()).flatten()
}

impl ClientCertVerifier for ClientAuthorities {
    fn offer_client_auth(&self) -> bool {
        self.current.read().is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Clients are not told which authorities there are: they send what they have.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let current = self.current.read().clone();
        let current = current.ok_or(CertificateError::UnknownIssuer)?;
        current.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
