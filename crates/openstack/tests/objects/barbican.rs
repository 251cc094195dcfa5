use seaway_openstack::{
    Cloud,
    barbican::{Container, ContainerType, NewContainer, NewSecret, Payload, Secret, SecretRef},
    resource::{Query, UnknownFields},
};
use secrecy::ExposeSecret;

pub(crate) async fn secrets_and_containers(cloud: &Cloud) {
    let secrets = cloud.all::<Secret>();
    let new = NewSecret {
        name: "walk".into(),
        secret_type: "passphrase".into(),
        payload: Payload::from(secrecy::SecretString::from("hush")).into(),
        payload_content_type: "text/plain".into(),
        ..NewSecret::new()
    };
    assert!(!format!("{new:?}").contains("hush"), "{new:?}");
    let secret = secrets.create(&new).await.expect("a secret");
    assert!(secret.secret_ref.ends_with(secret.id.as_str()), "{secret:?}");
    assert_eq!(secrets.payload(&secret.id).await.expect("its payload").expose_secret(), "hush");
    let listed = secrets.list::<Secret>(Query::named("walk")).await.expect("secrets");
    assert_eq!(listed.iter().map(|it| &it.id).collect::<Vec<_>>(), [&secret.id]);

    let containers = cloud.all::<Container>();
    let of = SecretRef {
        name: "key".to_owned(),
        secret_ref: secret.secret_ref.clone(),
        rest: UnknownFields::new(),
    };
    let new = NewContainer {
        name: "walk".into(),
        secret_refs: vec![of.clone()].into(),
        ..NewContainer::new(ContainerType::Generic)
    };
    let container = containers.create(&new).await.expect("a container");
    assert_eq!(container.secret_refs, [of]);
    containers.delete(&container.id).await.expect("deleted");
    secrets.delete(&secret.id).await.expect("deleted");
    secrets.delete(&secret.id).await.expect("what is gone is deleted");
    assert_eq!(secrets.find::<Secret>(&secret.id).await.expect("an answer"), None);
}
