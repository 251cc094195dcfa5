//! One session for all callers: renewed once, ahead of its end, from credentials that change under way.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use seaway_openstack::{Call, Class, Cloud, Environment, Error, Limits, Service, Settings, Source, Timing};
use serde_json::json;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    counted::RecordedMetrics,
    hurried::FastClock,
    keystone::{base, connect, grant, granted, quick, signs_in, unauthorized},
    scripted::{Request, ScriptedReply, ScriptedServer},
};

pub(crate) fn networks() -> Call {
    Call::get(Service::Network, "list networks", "/networks")
}

/// Gives tokens t1, t2, …; those before `good` are no longer taken.
#[derive(Clone, Default)]
struct Tokens {
    given: Arc<AtomicUsize>,
    good: Arc<AtomicUsize>,
}

impl Tokens {
    fn act(&self, request: &Request) -> ScriptedReply {
        if signs_in(request) {
            let number = self.given.fetch_add(1, Ordering::SeqCst) + 1;
            let token: &'static str = format!("t{number}").leak();
            return ScriptedReply::JsonWith(201, ("x-subject-token", token), grant(&base(request)));
        }
        let token = request.headers.get("x-auth-token").and_then(|it| it.strip_prefix('t')?.parse().ok());
        if token.is_some_and(|it: usize| it >= self.good.load(Ordering::SeqCst)) {
            ScriptedReply::Json(200, json!({"networks": []}))
        } else {
            unauthorized()
        }
    }

    fn serve(&self) -> ScriptedServer {
        let tokens = self.clone();
        ScriptedServer::start(move |request| tokens.act(request))
    }

    /// What has been given so far is revoked.
    fn revoke(&self) {
        self.good.store(self.given.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
    }
}

pub(crate) async fn all(cloud: &Cloud, count: usize) -> Vec<Result<(), Error>> {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let cloud = cloud.clone();
        calls.spawn(async move { cloud.call(networks()).await.map(drop) });
    }
    calls.join_all().await
}

/// Until it is so; no test knows how long a thread takes.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect(what);
}

pub(crate) fn hurried() -> (Arc<FastClock>, Settings) {
    let clock = Arc::new(FastClock::new());
    (clock.clone(), Settings { clock, ..quick() })
}

#[tokio::test]
async fn a_token_that_ends_in_the_middle_of_a_hundred_calls_costs_one_sign_in() {
    let tokens = Tokens::default();
    let server = tokens.serve();
    let counted = RecordedMetrics::default();
    let cloud = connect(&server, Settings { metrics: counted.metrics(), ..quick() }).await.expect("let in");
    assert!(all(&cloud, 20).await.iter().all(Result::is_ok));
    tokens.revoke();
    assert!(all(&cloud, 100).await.iter().all(Result::is_ok));
    assert_eq!((server.count("POST", "/auth/tokens"), counted.sign_ins("ok")), (2, 2));
}

#[tokio::test]
async fn who_hears_late_that_a_token_ended_takes_the_one_that_others_got() {
    let tokens = Tokens::default();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (released, late) = (std::sync::Mutex::new(released), "/network/v2.0/late");
    let server = {
        let tokens = tokens.clone();
        ScriptedServer::start(move |request| {
            if request.path == late && request.headers["x-auth-token"] == "t1" {
                _ = released.lock().expect("one call").recv();
            }
            tokens.act(request)
        })
    };
    let (clock, settings) = hurried();
    let cloud = connect(&server, settings).await.expect("let in");
    tokens.revoke();
    let waiting = tokio::spawn({
        let cloud = cloud.clone();
        async move { cloud.call(Call::get(Service::Network, "list late", "/late")).await }
    });
    until("it waits", async || server.count("GET", late) == 1).await;
    cloud.call(networks()).await.expect("with a new token");
    clock.advance(Duration::from_secs(10));
    release.send(()).expect("it waits");
    waiting.await.expect("no panic").expect("with the new token");
    assert_eq!(server.count("POST", "/auth/tokens"), 2);
}

#[tokio::test]
async fn a_hundred_callers_do_not_lock_the_account_of_a_wrong_password() {
    let tokens = Tokens::default();
    let revoked = Arc::new(AtomicUsize::new(0));
    let server = {
        let (tokens, revoked) = (tokens.clone(), revoked.clone());
        ScriptedServer::start(move |request| match revoked.load(Ordering::SeqCst) {
            0 => tokens.act(request),
            _ => unauthorized(),
        })
    };
    // No time passes, however slow they are: after some seconds it would be tried again.
    let limits = Limits { per_second: 100_000, ..Limits::default() };
    let cloud = connect(&server, Settings { limits, ..hurried().1 }).await.expect("let in");
    revoked.store(1, Ordering::SeqCst);
    let before = server.count("POST", "/auth/tokens");
    for outcome in all(&cloud, 100).await {
        assert_eq!(outcome.expect_err("the password is wrong now").class(), &Class::Credentials);
    }
    // One with the project and, to learn more, one without.
    assert_eq!(server.count("POST", "/auth/tokens") - before, 2);
}

#[tokio::test]
async fn a_service_that_takes_no_token_does_not_make_us_sign_in_without_end() {
    let server =
        ScriptedServer::start(|request| if signs_in(request) { granted(request) } else { unauthorized() });
    // A second later another token would be asked for.
    let cloud = connect(&server, hurried().1).await.expect("let in");
    for _ in 0..20 {
        let error = cloud.call(networks()).await.expect_err("never taken");
        assert_eq!(error.class(), &Class::Unauthorized);
    }
    assert!(server.count("POST", "/auth/tokens") <= 3, "{}", server.count("POST", "/auth/tokens"));
}

#[tokio::test]
async fn an_ageing_token_is_renewed_before_its_end_and_an_old_one_at_once() {
    let tokens = Tokens::default();
    let server = tokens.serve();
    let (clock, settings) = hurried();
    let cloud = connect(&server, settings).await.expect("let in");
    // It lives an hour by Keystone's clock, whatever ours says of 2026.
    clock.advance(Duration::from_secs(54 * 60));
    cloud.call(networks()).await.expect("the old one works");
    assert_eq!(server.count("POST", "/auth/tokens"), 1);

    clock.advance(Duration::from_secs(2 * 60));
    cloud.call(networks()).await.expect("the old one still works");
    until("it is renewed ahead", async || server.count("POST", "/auth/tokens") == 2).await;
    until("the new one is in use", async || {
        cloud.call(networks()).await.expect("works");
        server.seen().last().is_some_and(|it| it.headers["x-auth-token"] == "t2")
    })
    .await;

    clock.advance(Duration::from_secs(2 * 3600));
    cloud.call(networks()).await.expect("with a new one");
    let last = server.seen().last().map(|it| it.headers["x-auth-token"].clone());
    assert_eq!(last.as_deref(), Some("t3"), "the old one was not even tried");
}

#[tokio::test]
async fn a_keystone_that_is_away_leaves_the_old_token_in_use() {
    let (tokens, away) = (Tokens::default(), Arc::new(AtomicUsize::new(0)));
    let server = {
        let (tokens, away) = (tokens.clone(), away.clone());
        ScriptedServer::start(move |request| match (signs_in(request), away.load(Ordering::SeqCst)) {
            (true, 1) => ScriptedReply::Json(503, json!(null)),
            _ => tokens.act(request),
        })
    };
    let (clock, settings) = hurried();
    let cloud = connect(&server, settings).await.expect("let in");
    away.store(1, Ordering::SeqCst);
    clock.advance(Duration::from_secs(57 * 60));
    assert!(all(&cloud, 10).await.iter().all(Result::is_ok));
    until("it was tried", async || server.count("POST", "/auth/tokens") > 1).await;
    assert!(all(&cloud, 10).await.iter().all(Result::is_ok));
}

/// Lets in whoever has this password, and forgets all tokens when another one is set.
pub(crate) struct PasswordServer {
    pub(crate) server: ScriptedServer,
    pub(crate) password: watch::Sender<&'static str>,
}

impl PasswordServer {
    pub(crate) fn new(password: &'static str) -> PasswordServer {
        let (sender, current) = watch::channel(password);
        let server = ScriptedServer::start(move |request| {
            let current = *current.borrow();
            if !signs_in(request) {
                return match request.headers.get("x-auth-token") {
                    Some(token) if token == current => ScriptedReply::Json(200, json!({"networks": []})),
                    _ => unauthorized(),
                };
            }
            match request.body.pointer("/auth/identity/password/user/password") {
                Some(given) if given == current => {
                    ScriptedReply::JsonWith(201, ("x-subject-token", current), grant(&base(request)))
                }
                _ => unauthorized(),
            }
        });
        PasswordServer { server, password: sender }
    }

    pub(crate) fn write(&self, file: &Path, password: &str) {
        self.write_for(&self.server, file, password);
    }

    fn write_for(&self, server: &ScriptedServer, file: &Path, password: &str) {
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        let text = format!(
            "clouds:\n  demo:\n    auth:\n      auth_url: {}/v3\n      username: demo\n      password: {password}\n      \
             project_name: demo\n",
            server.url()
        );
        fs::write(file, text).expect("written");
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("set");
    }

    pub(crate) fn source(file: &Path) -> Source {
        let around = Environment::in_folder(file.parent().expect("a folder"));
        Source::Client { cloud: Some("demo".into()), around }
    }
}

#[tokio::test]
async fn a_password_changed_under_way_is_picked_up_when_the_old_one_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let (door, file) = (PasswordServer::new("old"), folder.path().join("clouds.yaml"));
    door.write(&file, "old");
    let cloud = Cloud::connect(PasswordServer::source(&file), quick()).await.expect("let in");
    cloud.call(networks()).await.expect("works");
    door.password.send_replace("new");
    door.write(&file, "new");
    assert!(
        all(&cloud, 20).await.iter().all(Result::is_ok),
        "the file is read again before anybody gives up"
    );
    assert_eq!(door.server.count("POST", "/auth/tokens"), 2);
}

#[tokio::test]
async fn new_credentials_are_tried_while_the_old_ones_are_in_use() {
    let folder = tempfile::tempdir().expect("a folder");
    let (door, file) = (PasswordServer::new("old"), folder.path().join("clouds.yaml"));
    door.write(&file, "old");
    let (clock, settings) = hurried();
    let cloud = Cloud::connect(PasswordServer::source(&file), settings).await.expect("let in");

    // Somebody mistypes it: nothing happens to those who call.
    door.write(&file, "mistyped");
    clock.advance(Duration::from_secs(15));
    cloud.call(networks()).await.expect("the old ones work");
    until("they are tried", async || door.server.count("POST", "/auth/tokens") >= 3).await;
    assert!(all(&cloud, 20).await.iter().all(Result::is_ok));
    let tried = door.server.count("POST", "/auth/tokens");
    assert_eq!(tried, 3, "one sign-in, one that failed, and one to learn why");

    // What did not work is tried again after a minute: the password may be set after it was written down.
    door.password.send_replace("mistyped");
    clock.advance(Duration::from_secs(61));
    cloud.call(networks()).await.expect("the new ones work by now");
    assert_eq!(cloud.session().user.name, "demo");
}

#[tokio::test]
async fn a_file_that_breaks_under_way_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (door, file) = (PasswordServer::new("old"), folder.path().join("clouds.yaml"));
    door.write(&file, "old");
    let (clock, settings) = hurried();
    let cloud = Cloud::connect(PasswordServer::source(&file), settings).await.expect("let in");
    for broken in ["clouds: [", "", "clouds:\n  other: {}\n"] {
        fs::write(&file, broken).expect("written");
        clock.advance(Duration::from_secs(15));
        assert!(all(&cloud, 5).await.iter().all(Result::is_ok), "{broken:?}");
    }
    fs::remove_file(&file).expect("removed");
    clock.advance(Duration::from_secs(15));
    assert!(all(&cloud, 5).await.iter().all(Result::is_ok), "without a file");
    assert_eq!(door.server.count("POST", "/auth/tokens"), 1);
}

/// Neither the first renewal nor the second, with credentials that are newer, may keep anybody longer than a call may
/// take.
#[tokio::test]
async fn a_keystone_that_stalls_keeps_nobody_longer_than_a_call_may_take() {
    let folder = tempfile::tempdir().expect("a folder");
    let (door, file) = (Arc::new(PasswordServer::new("old")), folder.path().join("clouds.yaml"));
    let stalls = Arc::new(AtomicUsize::new(0));
    let server = {
        let stalls = stalls.clone();
        ScriptedServer::start(move |request| match (signs_in(request), stalls.load(Ordering::SeqCst)) {
            (true, 0) => granted(request),
            (true, _) => ScriptedReply::Stall,
            (false, _) => unauthorized(),
        })
    };
    door.write_for(&server, &file, "old");
    let may_take = Duration::from_secs(6);
    let timing = Timing { attempt: may_take, call: may_take, ..quick().timing };
    let cloud =
        Cloud::connect(PasswordServer::source(&file), Settings { timing, ..quick() }).await.expect("let in");
    stalls.store(1, Ordering::SeqCst);
    door.write_for(&server, &file, "new");
    let start = std::time::Instant::now();
    for outcome in all(&cloud, 10).await {
        let error = outcome.expect_err("no new token");
        assert_eq!(error.class(), &Class::Timeout, "{error}");
        assert!(error.to_string().starts_with("list networks: Keystone gave no new token within"), "{error}");
    }
    assert!(start.elapsed() < may_take + may_take * 3 / 4, "{:?}", start.elapsed());
}
