//! Barbican, the key manager: secrets, and containers that hold several of them for one purpose.
//!
//! Barbican calls its objects by addresses (`secret_ref`), which Octavia wants whole; the id is the end of it.

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Accept, Error, Method, Service,
    resource::{
        Collection, Creatable, FieldError, Id, IdentifyingFields, Resource, ResourceNames, ResourceState,
        SecretText, UnknownFields, noun, resource, unexpected_reply, words,
    },
};

words! {
    SecretStatus {
        Active = "ACTIVE",
        Pending = "PENDING",
        Error = "ERROR",
    }
}

words! {
    /// What a container is for.
    ContainerType {
        Generic = "generic",
        Certificate = "certificate",
        Rsa = "rsa",
    }
}

resource! {
    /// What is told of a secret without telling it.
    Secret / NewSecret
    fixed {
        name: String,
        /// `passphrase`, `certificate`, `private`, `opaque`.
        secret_type: String,
        /// When it is forgotten.
        expiration: Option<String>,
        algorithm: Option<String>,
        bit_length: Option<u32>,
        mode: Option<String>,
    }
    given {
        payload: Payload,
        /// `text/plain`, `application/octet-stream`.
        payload_content_type: String,
        /// `base64`, where the content is no text.
        payload_content_encoding: String,
    }
    told {
        secret_ref: Address,
        status: SecretStatus,
        created: Option<String>,
        updated: Option<String>,
    }
}

resource! {
    /// Several secrets for one purpose: a certificate, its key, its chain.
    Container / NewContainer
    needed {
        r#type: ContainerType,
    }
    fixed {
        name: String,
        secret_refs: Vec<SecretRef>,
    }
    told {
        container_ref: Address,
        status: SecretStatus,
        created: Option<String>,
        updated: Option<String>,
    }
}

/// The whole address of a secret or container.
pub type Address = String;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecretRef {
    /// `certificate`, `private_key`, `intermediates`.
    pub name: String,
    pub secret_ref: Address,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

/// A secret on its way.
pub type Payload = SecretText;

impl Resource for Secret {
    type Parent = ();
    const SERVICE: Service = Service::KeyManager;
    const PATH: &'static str = "/secrets";
    const NAMES: ResourceNames = noun!("secret", "secrets", None, "secrets");
    const ID: &'static str = "secret_ref";

    fn standing(&self) -> ResourceState {
        standing(&self.status)
    }
}

impl Creatable for Secret {
    type New = NewSecret;
    const ECHOES: bool = false;
    const KNOWN_BY: IdentifyingFields = IdentifyingFields::Marks(&["name", "secret_type"]);
}

impl Resource for Container {
    type Parent = ();
    const SERVICE: Service = Service::KeyManager;
    const PATH: &'static str = "/containers";
    const NAMES: ResourceNames = noun!("container", "containers", None, "containers");
    const ID: &'static str = "container_ref";

    fn standing(&self) -> ResourceState {
        standing(&self.status)
    }
}

impl Creatable for Container {
    type New = NewContainer;
    const ECHOES: bool = false;
    const KNOWN_BY: IdentifyingFields = IdentifyingFields::Marks(&["name", "type"]);
}

fn standing(status: &SecretStatus) -> ResourceState {
    match status {
        SecretStatus::Active => ResourceState::Ready,
        SecretStatus::Error => ResourceState::Failed(status.to_string()),
        other => ResourceState::Pending(other.to_string()),
    }
}

impl Collection<Secret> {
    /// What is kept, of a secret that is text.
    pub async fn payload(&self, id: &Id<Secret>) -> Result<SecretString, Error> {
        const OPERATION: &str = "read secret payload";
        let call = self.action(Method::GET, OPERATION, id, "payload").accept(Accept::Text);
        match self.cloud.call(call).await?.body {
            Value::String(text) => Ok(text.into()),
            _ => {
                let why = "is not text".to_owned();
                Err(unexpected_reply(
                    Service::KeyManager,
                    OPERATION,
                    &FieldError { field: "payload".to_owned(), why },
                ))
            }
        }
    }
}
