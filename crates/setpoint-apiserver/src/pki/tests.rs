use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::*;

fn authority() -> CertificateAuthority {
    CertificateAuthority::generate(&Env::system()).unwrap()
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> X509Certificate<'a> {
    X509Certificate::from_der(der).unwrap().1
}

#[test]
fn a_client_certificate_says_who_the_user_is() {
    let mut user = User::new("jane", ["developers", "operators", "auditors"]);
    user.uid = "42".to_owned();
    let ca = authority();
    let identity = ca.issue_client(&user).unwrap();
    assert_eq!(user_of(identity.certificate_der()), Some(user));
    let issuer = parse(ca.certificate_der());
    parse(identity.certificate_der()).verify_signature(Some(issuer.public_key())).unwrap();
}

#[test]
fn a_user_without_groups_can_have_a_certificate_and_one_without_a_name_cannot() {
    let ca = authority();
    let user = User::new("système:ünïcode", [""; 0]);
    assert_eq!(user_of(ca.issue_client(&user).unwrap().certificate_der()), Some(user));
    assert!(matches!(ca.issue_client(&User::default()), Err(Error::NamelessUser)));
}

#[test]
fn bytes_that_are_no_certificate_name_nobody() {
    assert_eq!(user_of(b""), None);
    assert_eq!(user_of(b"0\x82\xff\xff"), None);
    assert_eq!(user_of(authority().issue_client(&User::admin()).unwrap().key_der().secret_der()), None);
}

#[test]
fn a_server_certificate_is_for_the_usual_names_and_the_given_ones() {
    let identity = authority().issue_server(["api.example", "192.0.2.7", "localhost"]).unwrap();
    let certificate = parse(identity.certificate_der());
    let names = certificate.subject_alternative_name().unwrap().unwrap().value.general_names.clone();
    let dns: Vec<&str> = names
        .iter()
        .filter_map(|name| if let GeneralName::DNSName(name) = name { Some(*name) } else { None })
        .collect();
    assert_eq!(
        dns,
        [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "localhost",
            "api.example",
        ]
    );
    for address in [&[127, 0, 0, 1][..], &[10, 96, 0, 1], &[192, 0, 2, 7]] {
        assert!(names.contains(&GeneralName::IPAddress(address)), "{address:?}");
    }
}

#[test]
fn a_name_that_is_none_is_refused() {
    for name in ["", "two words", "a..b", "käse.example", "*.example/path"] {
        let result = authority().issue_server([name]);
        assert!(matches!(result, Err(Error::InvalidName { .. })), "{name:?}: {result:?}");
    }
}

#[test]
fn certificates_hold_from_a_little_ago_and_have_their_own_serial_numbers() {
    let env = Env::system();
    let ca = CertificateAuthority::generate(&env).unwrap();
    let [one, two] = [(); 2].map(|()| ca.issue_client(&User::admin()).unwrap());
    let certificate = parse(one.certificate_der());
    let age = env.now().as_second() - certificate.validity().not_before.timestamp();
    assert!((300..360).contains(&age), "{age}");
    let days = certificate.validity().time_to_expiration().unwrap().whole_days();
    assert!((364..=365).contains(&days), "{days}");
    assert_ne!(certificate.serial, parse(two.certificate_der()).serial);
}

#[test]
fn a_stored_authority_goes_on_issuing() {
    let env = Env::system();
    let first = authority();
    let again = CertificateAuthority::from_pem(&env, first.to_pem()).unwrap();
    assert_eq!(again.certificate_der(), first.certificate_der());

    let old = first.issue_server(["api.example"]).unwrap();
    let old = Identity::from_pem(old.to_pem()).unwrap();
    again.server_config(&old).unwrap();

    let client = again.issue_client(&User::admin()).unwrap();
    let certificate = parse(client.certificate_der());
    certificate.verify_signature(Some(parse(first.certificate_der()).public_key())).unwrap();
    assert_eq!(certificate.issuer().to_string(), "CN=setpoint");
}

#[test]
fn stored_text_that_is_damaged_is_refused() {
    let env = Env::system();
    let (ca, other) = (authority().to_pem(), authority().to_pem());
    let swapped = Pem { key: other.key, ..ca.clone() };
    assert!(matches!(CertificateAuthority::from_pem(&env, swapped), Err(Error::KeyMismatch)));
    let cut = Pem { certificate: ca.certificate[..100].to_owned(), ..ca.clone() };
    assert!(matches!(CertificateAuthority::from_pem(&env, cut), Err(Error::InvalidPem { .. })));
    let keyless = Pem { key: String::new(), ..ca };
    assert!(matches!(Identity::from_pem(keyless), Err(Error::InvalidPem { .. })));
}

#[test]
fn private_keys_are_not_printed() {
    let ca = authority();
    let client = ca.issue_client(&User::admin()).unwrap();
    for text in [format!("{ca:?}"), format!("{client:?}"), format!("{:?}", client.to_pem())] {
        assert!(!text.contains("PRIVATE KEY"), "{text}");
        assert!(!text.contains(&client.to_pem().key[30..90]), "{text}");
    }
}
