//! What every step of every driver passes: the fence, and for what deletes or exposes, the gate.

use std::collections::BTreeSet;

use seaway_model::{config::AdoptionConfig, fact::FactRef};

use super::{
    removals::{ApiServer, Counts},
    *,
};

fn fence(leads: &Arc<AtomicBool>) -> Fence {
    let leads = leads.clone();
    Fence::new(move || leads.load(Ordering::Relaxed))
}

fn steps(it: &mut Script) -> Vec<String> {
    it.applied.iter().map(|(.., step)| step.clone()).collect()
}

fn in_a_cloud(more: &[&'static str], asked: &ApiServer) -> Running {
    let running = Running::adopting(asked, &Counts::default(), AdoptionConfig::default());
    running.played.with(|it| it.more = more.to_vec());
    running
}

/// Longer than whatever is tried again.
const PATIENCE: Duration = Duration::from_secs(100);

#[tokio::test(start_paused = true)]
async fn without_the_lead_no_driver_writes_and_with_it_all_continue() {
    let leads = Arc::new(AtomicBool::new(false));
    let running = Running::fenced(Script::default(), fence(&leads));
    running.tell(told().into_iter().chain(synced())).await;
    running.until("it is looked at", |it| !it.at_work.is_empty()).await;
    tokio::time::sleep(PATIENCE).await;
    assert_eq!(running.played.with(steps), [""; 0], "another leads");
    leads.store(true, Ordering::Relaxed);
    running.until("it is made", |it| steps(it) == ["make"]).await;
    running.until_serving().await;
    // The short way is a write, too.
    leads.store(false, Ordering::Relaxed);
    let members = || vec![endpoint("10.0.0.1"), endpoint("10.0.0.2")];
    running.tell([put_slice(&slice("shop", ("", 80), members()))]).await;
    tokio::time::sleep(PATIENCE).await;
    assert_eq!(running.played.with(|it| (it.swapped.len(), it.applied.len())), (0, 1), "another leads");
    leads.store(true, Ordering::Relaxed);
    running.until("its members follow", |it| it.swapped.len() + it.applied.len() > 1).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lead_that_ends_between_two_steps_stops_before_the_second() {
    let leads = Arc::new(AtomicBool::new(true));
    let script = Script { more: vec!["tune"], deposes: Some(leads.clone()), ..Script::default() };
    let running = Running::fenced(script, fence(&leads));
    running.tell(told().into_iter().chain(synced())).await;
    running.until("the first step", |it| !it.applied.is_empty()).await;
    tokio::time::sleep(PATIENCE).await;
    assert_eq!(running.played.with(steps), ["make"], "another leads by then");
    leads.store(true, Ordering::Relaxed);
    running.until("the second step", |it| steps(it).contains(&"tune".to_owned())).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_deletes_without_knowing_better_is_counted_one_by_one() {
    let asked = ApiServer::who_says(Ok(Some(shop())));
    let running = in_a_cloud(&["remove a", "remove b", "tune", "remove c", "remove d", "remove e"], &asked);
    running.tell([put(&shop())].into_iter().chain(synced())).await;
    running.until("all is done that may be", |it| steps(it).contains(&"remove c".to_owned())).await;
    tokio::time::sleep(PATIENCE).await;
    let done: BTreeSet<String> = running.played.with(steps).into_iter().collect();
    assert_eq!(done.iter().collect::<Vec<_>>(), ["make", "remove a", "remove b", "remove c", "tune"]);
    let told = running.handle.ask(|world| world.problems()).await.expect("the engine runs");
    let limited = told.iter().filter(|it| it.reason == Reason::DeletionLimit);
    assert_eq!(limited.count(), 2, "{told:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_deletes_without_a_word_of_its_driver_is_not_taken_and_the_others_are() {
    let asked = ApiServer::who_says(Ok(Some(shop())));
    let running = in_a_cloud(&["remove a", "tune"], &asked);
    running.played.with(|it| it.is_silent = true);
    running.tell([put(&shop())].into_iter().chain(synced())).await;
    running.until("the others are", |it| steps(it).contains(&"tune".to_owned())).await;
    tokio::time::sleep(PATIENCE).await;
    assert!(!running.played.with(steps).contains(&"remove a".to_owned()));
    let told = running.handle.ask(|world| world.problems()).await.expect("the engine runs");
    let says = "the driver Played does not say what it deletes";
    assert!(told.iter().any(|it| it.reason == Reason::Failed && it.message.contains(says)), "{told:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_exposed_where_nothing_is_wanted_any_more() {
    let asked = ApiServer::who_says(Ok(None));
    let running = in_a_cloud(&["open a"], &asked);
    running.tell([put(&shop())].into_iter().chain(synced())).await;
    running.until("it is exposed", |it| steps(it).contains(&"open a".to_owned())).await;
    running.tell([seaway_model::Change::Gone(FactRef::Object(owner(&shop()).object()))]).await;
    running.until("it is removed", |it| steps(it).contains(&"remove".to_owned())).await;
    let exposed = |it: &mut Script| steps(it).iter().filter(|it| *it == "open a").count();
    let before = running.played.with(exposed);
    tokio::time::sleep(PATIENCE).await;
    let made = |it: &mut Script| steps(it).iter().filter(|it| *it == "make").count();
    assert_eq!(running.played.with(exposed), before);
    assert_eq!(running.played.with(made), before, "as often as it was made");
    // What is left out is not done, so it is not gone either.
    let removed = running.played.with(|it| steps(it).iter().filter(|it| *it == "remove").count());
    assert!(removed > 1, "it is tried again");
    running.stop().await;
}
