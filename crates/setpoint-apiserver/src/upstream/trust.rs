//! Whom a client trusts: the authorities of a `caBundle`, and the certificates in it themselves.
//!
//! Go takes a server's certificate that is itself among the roots, authority or not, and many a webhook is configured like
//! this: with its own serving certificate as the bundle. WebPKI asks for an authority above every server. So what WebPKI
//! refuses is looked at again, and taken if the bundle has that very certificate, and it is for this host and this time.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, ExtendedKeyPurpose, RootCertStore,
    SignatureScheme,
};
use x509_parser::parse_x509_certificate;
use x509_parser::prelude::ASN1Time;

use crate::pki::Identity;

/// Whom a client trusts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Trusted {
    /// Certificates in PEM; those of the system if it is empty.
    Bundle(Vec<u8>),
    /// Whoever answers.
    Anybody,
}

/// The TLS of a client.
pub(super) fn client_config(trusted: &Trusted, identity: Option<&Identity>) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match trusted {
        Trusted::Bundle(bundle) if bundle.is_empty() => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            builder.with_root_certificates(roots)
        }
        Trusted::Bundle(bundle) => {
            let bundle = Some(Bundle::parse(bundle, Arc::clone(&provider))?);
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Verifier { provider, bundle }))
        }
        Trusted::Anybody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier { provider, bundle: None })),
    };
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    builder
        .with_client_auth_cert(identity.chain().to_vec(), identity.key_der().clone_key())
        .map_err(|error| format!("the client certificate cannot be used: {error}"))
}

/// Checks the servers that a client connects to. That a server has the key of its certificate is checked whoever it is.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// None takes every certificate.
    bundle: Option<Bundle>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.bundle {
            None => Ok(ServerCertVerified::assertion()),
            Some(bundle) => bundle.verify(end_entity, intermediates, server_name, ocsp_response, now),
        }
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

/// The certificates of a `caBundle`.
#[derive(Debug)]
struct Bundle {
    certificates: Vec<CertificateDer<'static>>,
    authorities: Arc<WebPkiServerVerifier>,
}

impl Bundle {
    fn parse(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Bundle, String> {
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|error| format!("caBundle is not PEM: {error}"))?;
        if certificates.is_empty() {
            return Err("caBundle has no certificate".to_owned());
        }
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots
                .add(certificate.clone())
                .map_err(|error| format!("caBundle has a bad certificate: {error}"))?;
        }
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| format!("caBundle cannot be used: {error}"))?;
        Ok(Bundle { certificates, authorities })
    }

    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // It has an authority, or it is somebody else's.
            verified if verified.is_ok() || !self.certificates.contains(end_entity) => verified,
            _ => verify_itself(end_entity, server_name, now),
        }
    }
}

/// What Go asks of a certificate that is trusted by itself: that its time is now, that it is for this host, and that it
/// may be a server's.
fn verify_itself(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let time = |time: ASN1Time| {
        let seconds = u64::try_from(time.timestamp()).unwrap_or(0);
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    };
    let (not_before, not_after) = (time(parsed.validity().not_before), time(parsed.validity().not_after));
    if now < not_before {
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if now > not_after {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    let usage = parsed.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_some_and(|usage| !usage.value.server_auth && !usage.value.any) {
        let required = ExtendedKeyPurpose::ServerAuth;
        return Err(CertificateError::InvalidPurposeContext { required, presented: Vec::new() }.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name)?;
    Ok(ServerCertVerified::assertion())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    };
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use serde_json::{Value, json};
    use setpoint_env::{Env, Task};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::upstream::{Clients, Where};
    use crate::webhook::{CallError, Target, post};

    /// A webhook that answers `{}` to everybody who trusts it.
    struct Webhook {
        address: SocketAddr,
        pem: String,
        _serving: Task<()>,
    }

    /// Who signs the certificate of a webhook.
    #[derive(Clone, Copy, Debug)]
    enum Signer {
        Itself,
        /// An authority that the bundle does not have.
        Stranger,
    }

    impl Webhook {
        async fn start(signer: Signer, params: CertificateParams) -> Webhook {
            let key = KeyPair::generate().unwrap();
            let certificate = match signer {
                Signer::Itself => params.self_signed(&key).unwrap(),
                Signer::Stranger => params.signed_by(&key, &authority()).unwrap(),
            };
            Webhook::serve(certificate.der().to_vec(), certificate.pem(), &key).await
        }

        async fn serve(certificate: Vec<u8>, pem: String, key: &KeyPair) -> Webhook {
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            let provider = Arc::new(ring::default_provider());
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.into()], key)
                .unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(config));
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let serving = Env::system().spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    // A client that does not trust it hangs up.
                    let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                    let _request = stream.read(&mut [0; 4096]).await;
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                    let _written = stream.write_all(answer).await;
                    let _closed = stream.shutdown().await;
                }
            });
            Webhook { address, pem, _serving: serving }
        }

        /// Calls it by a name, trusting a bundle.
        async fn call(&self, host: &str, bundle: &str) -> Result<Value, CallError> {
            let target = Target {
                url: format!("https://{host}:{}/", self.address.port()),
                place: Where::At(vec![self.address]),
                trusted: Trusted::Bundle(bundle.as_bytes().to_vec()),
            };
            post(&Clients::default(), target, "{}".into()).await
        }

        #[track_caller]
        fn refuses(outcome: Result<Value, CallError>, why: &str) {
            match outcome {
                Err(CallError::Failed { why: found, .. }) => assert!(found.contains(why), "{found}"),
                other => panic!("{other:?}"),
            }
        }
    }

    fn params() -> CertificateParams {
        CertificateParams::new(["hook.test".to_owned(), "127.0.0.1".to_owned()]).unwrap()
    }

    fn authority() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority");
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_bundle_may_be_the_serving_certificate_itself() {
        for signer in [Signer::Itself, Signer::Stranger] {
            let webhook = Webhook::start(signer, params()).await;
            for host in ["hook.test", "127.0.0.1"] {
                let answer = webhook.call(host, &webhook.pem).await;
                assert_eq!(answer.expect("it is trusted"), json!({}), "{signer:?}");
            }
            let several = format!("{}{}", Webhook::start(signer, params()).await.pem, webhook.pem);
            assert_eq!(webhook.call("hook.test", &several).await.unwrap(), json!({}), "{signer:?}");
        }
    }

    /// The reason for all of this.
    #[test]
    fn web_pki_alone_refuses_a_server_whose_authority_is_not_in_the_bundle() {
        let certificate = params().signed_by(&KeyPair::generate().unwrap(), &authority()).unwrap();
        let bundle = Bundle::parse(certificate.pem().as_bytes(), Arc::new(ring::default_provider())).unwrap();
        let (name, now) = (ServerName::try_from("hook.test").unwrap(), UnixTime::now());
        let refused = bundle.authorities.verify_server_cert(certificate.der(), &[], &name, &[], now);
        assert_eq!(refused.unwrap_err(), CertificateError::UnknownIssuer.into());
        bundle.verify(certificate.der(), &[], &name, &[], now).expect("the bundle has it");
    }

    #[tokio::test]
    async fn a_serving_certificate_that_calls_itself_an_authority_is_trusted_too() {
        for signer in [Signer::Itself, Signer::Stranger] {
            let mut params = params();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let webhook = Webhook::start(signer, params).await;
            assert_eq!(webhook.call("hook.test", &webhook.pem).await.unwrap(), json!({}), "{signer:?}");
        }
    }

    #[tokio::test]
    async fn a_certificate_in_the_bundle_is_good_for_its_names_its_time_and_its_purpose_only() {
        for signer in [Signer::Itself, Signer::Stranger] {
            let webhook = Webhook::start(signer, params()).await;
            Webhook::refuses(webhook.call("other.test", &webhook.pem).await, "not valid for name");
            let year = |year| rcgen::date_time_ymd(year, 1, 1);
            let mut expired = params();
            (expired.not_before, expired.not_after) = (year(2000), year(2001));
            let webhook = Webhook::start(signer, expired).await;
            Webhook::refuses(webhook.call("hook.test", &webhook.pem).await, "expired");
            let mut early = params();
            (early.not_before, early.not_after) = (year(2900), year(2901));
            let webhook = Webhook::start(signer, early).await;
            Webhook::refuses(webhook.call("hook.test", &webhook.pem).await, "not valid yet");
            let mut of_client = params();
            of_client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            let webhook = Webhook::start(signer, of_client).await;
            Webhook::refuses(webhook.call("hook.test", &webhook.pem).await, "extended key usage");
        }
    }

    #[tokio::test]
    async fn another_key_for_the_same_name_is_not_trusted() {
        for signer in [Signer::Itself, Signer::Stranger] {
            let (webhook, other) =
                (Webhook::start(signer, params()).await, Webhook::start(signer, params()).await);
            Webhook::refuses(other.call("hook.test", &webhook.pem).await, "invalid peer certificate");
        }
    }

    #[tokio::test]
    async fn an_authority_in_the_bundle_vouches_for_its_servers() {
        let (authority, key) = (authority(), KeyPair::generate().unwrap());
        let certificate = params().signed_by(&key, &authority).unwrap();
        let webhook = Webhook::serve(certificate.der().to_vec(), certificate.pem(), &key).await;
        assert_eq!(webhook.call("hook.test", &authority.pem()).await.unwrap(), json!({}));
        Webhook::refuses(webhook.call("other.test", &authority.pem()).await, "not valid for name");
    }
}
