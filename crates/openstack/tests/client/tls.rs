//! Whom we believe over TLS, what we show, and what is said when that does not fit.

use std::{path::PathBuf, time::Instant};

use seaway_openstack::{
    Class, Cloud, Credentials, Error, Source,
    credentials::{Located, SourceLocation},
};

use crate::{
    again,
    certificates::Authority,
    keystone::{credentials, grant, granted, quick},
    scripted::{ScriptedReply, ScriptedServer},
    trouble::{SOON, check},
};

/// Signing in over TLS, with these files of the client's; `{at}` stands for the server's address.
async fn over_tls(
    config: rustls::ServerConfig,
    adjust: impl FnOnce(&mut Credentials),
) -> (String, Option<Error>) {
    let server = ScriptedServer::start_tls(config, |request| {
        let host = request.headers.get("host").map(String::as_str).unwrap_or_default();
        ScriptedReply::JsonWith(201, ("x-subject-token", "t"), grant(&format!("https://{host}")))
    });
    let mut credentials = credentials(&format!("{}/v3", server.url()));
    adjust(&mut credentials);
    let start = Instant::now();
    let error = Cloud::connect(Source::Given(credentials), quick()).await.err();
    assert!(start.elapsed() < SOON, "{error:?} took {:?}", start.elapsed());
    (server.address().to_string(), error)
}

fn named(path: PathBuf) -> Located<PathBuf> {
    Located { value: path, place: SourceLocation("clouds.yaml:9".into()) }
}

#[tokio::test]
async fn tls_is_refused_with_what_to_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let (ours, others) = (Authority::new(), Authority::new());
    let ca = named(ours.write(folder.path()));
    let trusting = |credentials: &mut Credentials| credentials.tls.ca = Some(ca.clone());

    let (_, fine) = over_tls(ours.signs("127.0.0.1").serve(None), trusting).await;
    assert!(fine.is_none(), "{fine:?}");

    let unknown = "is signed by an authority that is not trusted here; name the file of that authority: `cacert` in \
                   clouds.yaml, `ca-file` in cloud.conf, or OS_CACERT";
    for (server, adjust) in [
        (
            ours.signs("127.0.0.1").serve(None),
            Box::new(|_: &mut Credentials| {}) as Box<dyn FnOnce(&mut Credentials)>,
        ),
        (others.signs("127.0.0.1").serve(None), Box::new(trusting)),
    ] {
        let (at, error) = over_tls(server, adjust).await;
        let error = error.expect("not trusted");
        check(Instant::now(), &error, &Class::Tls, &format!("sign in: the certificate of {at} {unknown}"));
    }
    let (at, error) = over_tls(ours.signs("keystone.example").serve(None), trusting).await;
    let line = format!(
        "sign in: the certificate of {at} is for another name; use a name that the certificate has, in auth_url (as given)"
    );
    check(Instant::now(), &error.expect("another name"), &Class::Tls, &line);
    let (at, error) = over_tls(ours.signs_expired("127.0.0.1").serve(None), trusting).await;
    let line = format!(
        "sign in: the certificate of {at} has expired; the operators of the service have to renew the certificate; also check this machine's clock"
    );
    check(Instant::now(), &error.expect("expired"), &Class::Tls, &line);

    let (_, fine) = over_tls(others.signs("else.example").serve(None), |it| {
        it.tls.insecure = Some(SourceLocation("x:1".into()))
    })
    .await;
    assert!(fine.is_none(), "who wants to believe anybody, does: {fine:?}");
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_one_is_wanted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (ours, clients) = (Authority::new(), Authority::new());
    let ca = named(ours.write(folder.path()));
    let (certificate, key) = clients.signs("seaway").write(folder.path());
    let server = || ours.signs("127.0.0.1").serve(Some(&clients));
    let (at, error) = over_tls(server(), |it| it.tls.ca = Some(ca.clone())).await;
    let line = format!(
        "sign in: {at} requires a client certificate, or a different one; name it: `cert` and `key` in clouds.yaml, \
         `cert-file` and `key-file` in cloud.conf"
    );
    check(Instant::now(), &error.expect("nothing was shown"), &Class::Tls, &line);
    let (_, fine) = over_tls(server(), |it| {
        it.tls.ca = Some(ca.clone());
        it.tls.client = Some((named(certificate), named(key)));
    })
    .await;
    assert!(fine.is_none(), "{fine:?}");
}

#[tokio::test]
async fn files_of_certificates_that_are_none_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "nothing").expect("written");
    let missing = folder.path().join("missing.pem");
    for (path, what) in [(&empty, "has no certificate"), (&missing, "cannot be read")] {
        let mut credentials = credentials("https://127.0.0.1:9/v3");
        credentials.tls.ca = Some(named(path.clone()));
        let error = Cloud::connect(Source::Given(credentials), quick()).await.err().expect("no CA");
        let told = error.to_string();
        assert!(told.starts_with(&format!("sign in: the CA file {} {what}", path.display())), "{told}");
        assert!(told.contains("the path comes from clouds.yaml:9"), "{told}");
    }
}

/// Whether or not a CA is named beside it: going on without it would end in a riddle, or in somebody else's rights.
#[tokio::test]
async fn a_client_certificate_that_cannot_be_used_is_never_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let ours = Authority::new();
    let ca = named(ours.write(folder.path()));
    let (certificate, key) = ours.signs("seaway").write(folder.path());
    let other = tempfile::tempdir().expect("a folder");
    let (_, others_key) = ours.signs("else").write(other.path());
    let (empty, missing) = (folder.path().join("empty.pem"), folder.path().join("missing.pem"));
    std::fs::write(&empty, "nothing").expect("written");
    for (pair, told) in [
        ((&missing, &key), format!("the client certificate {} cannot be read", missing.display())),
        ((&certificate, &missing), format!("the key of the client certificate {} cannot", missing.display())),
        ((&certificate, &empty), "has no certificate with its key".to_owned()),
        ((&certificate, &others_key), "key and certificate have to belong together".to_owned()),
    ] {
        for ca in [None, Some(ca.clone())] {
            let mut credentials = credentials("https://127.0.0.1:9/v3");
            credentials.tls.ca = ca;
            credentials.tls.client = Some((named(pair.0.clone()), named(pair.1.clone())));
            let error = Cloud::connect(Source::Given(credentials), quick()).await.err().expect("unusable");
            assert!(error.to_string().contains(&told), "{error}");
        }
    }
}

#[test]
fn a_system_without_authorities_speaks_http_and_believes_nobody() {
    let nowhere = ("SSL_CERT_FILE", "/nowhere.pem");
    let test = "tls::in_a_process_without_authorities";
    let output = again(test, &[nowhere, ("SSL_CERT_DIR", "/nowhere")]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

#[tokio::test]
#[ignore = "run by another test, where the system has no authorities"]
async fn in_a_process_without_authorities() {
    let plain = ScriptedServer::start(granted);
    let credentials = credentials(&format!("{}/v3", plain.url()));
    Cloud::connect(Source::Given(credentials), quick()).await.expect("let in");
    let (_, error) = over_tls(Authority::new().signs("127.0.0.1").serve(None), |_| {}).await;
    assert_eq!(error.expect("nobody is trusted").class(), &Class::Tls);
}

#[tokio::test]
async fn http_where_tls_is_spoken_and_the_other_way_round_say_so() {
    let plain = ScriptedServer::start(granted);
    let at = plain.address();
    let start = Instant::now();
    let source = Source::Given(credentials(&format!("https://{at}/v3")));
    let error = Cloud::connect(source, quick()).await.err().expect("no TLS");
    check(
        start,
        &error,
        &Class::Tls,
        &format!(
            "sign in: {at} does not speak TLS; if it speaks plain HTTP, write http:// in auth_url (as given)"
        ),
    );
    let tls = ScriptedServer::start_tls(Authority::new().signs("127.0.0.1").serve(None), granted);
    let at = tls.address();
    let start = Instant::now();
    let source = Source::Given(credentials(&format!("http://{at}/v3")));
    let error = Cloud::connect(source, quick()).await.err().expect("TLS");
    check(
        start,
        &error,
        &Class::NotOpenStack,
        &format!(
            "sign in: {at} does not speak plain HTTP; if it speaks TLS, write https:// in auth_url (as given)"
        ),
    );
}
