use super::*;

#[tokio::test(start_paused = true)]
async fn who_leads_without_others_leads_on_and_who_is_not_renewed_stops() {
    let mut always = Leadership::always();
    assert!(always.is_held());
    tokio::time::timeout(Duration::from_secs(3600), always.changed_from(true)).await.expect_err("it goes on");
    let (tell, watched) = watch::channel(Some(Instant::now() + Duration::from_secs(2)));
    let mut leading = Leadership { until: watched, handed_over: Arc::default() };
    drop(tell);
    leading.changed_from(true).await;
    assert!(!leading.is_held());
}

/// How often it is polled, how long it takes, and whether it is done.
async fn polls(limit: Duration, work: impl Future<Output = ()>) -> (u32, Duration, bool) {
    let (begin, mut polls) = (Instant::now(), 0);
    let mut work = std::pin::pin!(within(limit, work));
    let done = std::future::poll_fn(|context| {
        polls += 1;
        work.as_mut().poll(context)
    });
    let done = done.await.is_some();
    (polls, begin.elapsed(), done)
}

#[tokio::test(start_paused = true)]
async fn a_try_without_an_answer_beats_each_second_until_its_time_is_over() {
    let (count, took, done) = polls(LeaseTimings::HOST.renew, std::future::pending()).await;
    assert!(!done && took >= LeaseTimings::HOST.renew && took < LeaseTimings::HOST.renew + BEAT, "{took:?}");
    assert!(count >= 10, "{count}");
    let (_, took, done) = polls(LeaseTimings::HOST.renew, tokio::time::sleep(BEAT * 3 / 2)).await;
    assert!(done && took < BEAT * 2, "{took:?}");
}

/// The watchdog looks each second.
#[test]
fn a_lease_that_hangs_is_found_within_ten_seconds() {
    assert!(
        BEAT + HANG_LIMIT + seaway_watchdog::WatchdogTimings::default().look * 2 <= Duration::from_secs(10)
    );
}
