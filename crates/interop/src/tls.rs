//! TLS for a test: a certificate for `localhost` that nobody signed, a server that shows it, and clients that trust it.

use std::sync::Arc;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};

/// Two sides that trust one another.
#[derive(Clone, Debug)]
pub struct Trust {
    /// Of the side that accepts.
    pub server: Arc<ServerConfig>,
    /// Of the side that connects.
    pub client: Arc<ClientConfig>,
}

impl Trust {
    /// With a new certificate, for all versions that rustls speaks.
    ///
    /// # Panics
    /// If the libraries do not understand one another.
    #[must_use]
    pub fn new() -> Self {
        Self::with_versions(rustls::ALL_VERSIONS)
    }

    /// The same for these versions only.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    pub fn with_versions(versions: &[&'static SupportedProtocolVersion]) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate can be made");
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .expect("ring knows these versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("the key fits the certificate");
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("it can be trusted");
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("ring knows these versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { server: Arc::new(server), client: Arc::new(client) }
    }

    /// A new connection of the accepting side.
    ///
    /// # Panics
    /// Not with this configuration.
    #[must_use]
    pub fn accept(&self) -> ServerConnection {
        ServerConnection::new(self.server.clone()).expect("the configuration is complete")
    }

    /// A new connection of the connecting side.
    ///
    /// # Panics
    /// Not with this configuration.
    #[must_use]
    pub fn connect(&self) -> ClientConnection {
        let name = ServerName::try_from("localhost").expect("a name");
        ClientConnection::new(self.client.clone(), name).expect("the configuration is complete")
    }
}

impl Default for Trust {
    fn default() -> Self {
        Self::new()
    }
}
