//! TLS for a test: a self-made certificate for `localhost`, a server that shows it, and clients that trust it.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};

/// Two sides that trust one another.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The configuration of the side that accepts.
    pub server: Arc<ServerConfig>,
    /// The configuration of the side that connects.
    pub client: Arc<ClientConfig>,
    /// The certificate, for a client elsewhere; see [`client_that_trusts`].
    pub certificate: Vec<u8>,
}

impl Trust {
    /// Makes both with a new certificate, for all versions that rustls speaks.
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
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("ring knows these versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("the key fits the certificate");
        let client = trusting(certificate.clone(), versions);
        Self { server: Arc::new(server), client, certificate: certificate.to_vec() }
    }

    /// A new connection of the accepting side.
    ///
    /// # Panics
    /// Never with this configuration.
    #[must_use]
    pub fn accept(&self) -> ServerConnection {
        ServerConnection::new(self.server.clone()).expect("the configuration is complete")
    }

    /// A new connection of the connecting side.
    ///
    /// # Panics
    /// Never with this configuration.
    #[must_use]
    pub fn connect(&self) -> ClientConnection {
        connection_to(&self.client)
    }
}

/// A new connection with this configuration, to the server that has a certificate for `localhost`.
///
/// # Panics
/// Never with a configuration of this module.
#[must_use]
pub fn connection_to(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(config.clone(), name).expect("the configuration is complete")
}

/// A client that trusts this certificate, which comes from a [`Trust`] elsewhere.
///
/// # Panics
/// If it is not a certificate.
#[must_use]
pub fn client_that_trusts(certificate: Vec<u8>) -> Arc<ClientConfig> {
    trusting(CertificateDer::from(certificate), rustls::ALL_VERSIONS)
}

fn trusting(certificate: CertificateDer<'static>, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("it can be trusted");
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .expect("ring knows these versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Default for Trust {
    fn default() -> Self {
        Self::new()
    }
}
