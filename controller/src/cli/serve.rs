//! `serve`: Ignition for new nodes, the machine-config-server.

use std::net::SocketAddr;
use std::path::PathBuf;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig as ClientConfig};
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};

use super::{CliError, VerbOutput};
use crate::controllers::{Format, start_log};
use crate::serve::{
    Answers, Cluster, Directory, Kubeconfig, ListenError, Listener, Source, TlsFiles, api_server_url,
};
use crate::watches::NoteAnswers;

/// Flags of `serve`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-controller serve --tls-cert tls.crt --tls-key tls.key \\\n    \
    --token-file tokens --bootstrap-kubeconfig kubeconfig\n\n\
    Without --directory and --kubeconfig it runs in a pod and uses its service account."
)]
pub(super) struct Arguments {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:22623")]
    listen: SocketAddr,
    /// Serve what `bootstrap` wrote there, without a cluster
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    directory: Option<PathBuf>,
    /// Kubeconfig of the cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Serve clients with a token of this file: lines TOKEN (all pools) or POOL TOKEN
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Serve clients with a certificate signed by these CAs, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// Kubeconfig of a new node's first contact
    #[arg(long, value_name = "FILE", conflicts_with = "bootstrap_token_dir")]
    bootstrap_kubeconfig: Option<PathBuf>,
    /// Directory with token and ca.crt to make that kubeconfig from
    #[arg(long, value_name = "DIR", requires = "apiserver_url")]
    bootstrap_token_dir: Option<PathBuf>,
    /// URL of the API server in that kubeconfig
    #[arg(long, value_name = "URL", requires = "bootstrap_token_dir",
        value_parser = |text: &str| api_server_url(text).map(|()| text.to_owned()))]
    apiserver_url: Option<String>,
    /// Serve nodes that get the kubeconfig of their first contact elsewhere
    #[arg(long, conflicts_with_all = ["bootstrap_kubeconfig", "bootstrap_token_dir"])]
    without_first_contact: bool,
    /// Log format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

impl Arguments {
    fn first_contact(&self) -> Kubeconfig {
        match (&self.bootstrap_kubeconfig, &self.bootstrap_token_dir, &self.apiserver_url) {
            (Some(path), ..) => Kubeconfig::File(path.clone()),
            (None, Some(directory), Some(server)) => {
                Kubeconfig::Secret { directory: directory.clone(), server: server.clone() }
            }
            (None, ..) if self.without_first_contact => Kubeconfig::Elsewhere,
            (None, ..) => Kubeconfig::None,
        }
    }

    fn tls(&self) -> Option<TlsFiles> {
        let (certificate, key) = (self.tls_cert.clone()?, self.tls_key.clone()?);
        Some(TlsFiles { certificate, key, client_authorities: self.client_ca.clone() })
    }
}

/// Serves until a signal.
pub(super) fn run(arguments: &Arguments) -> Result<VerbOutput, CliError> {
    let failed = |error: &dyn std::fmt::Display| CliError::Failed(error.to_string());
    start_log(arguments.log_format);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| failed(&error))?.block_on(async {
        let source = match &arguments.directory {
            Some(directory) => Source::Directory(Directory::new(directory)),
            None => Source::Cluster(Box::new(Cluster::watch(client(arguments).await?))),
        };
        let answers = Answers::new(source, arguments.first_contact())
            .guarded(arguments.token_file.clone(), arguments.client_ca.is_some());
        let signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
        let [mut terminate, mut interrupt] = signals;
        let listener = Listener::bind(arguments.listen, arguments.tls(), answers).await;
        let listener = listener.map_err(|error| match error {
            ListenError::Bind { .. } => failed(&error),
            ListenError::Plain { .. } | ListenError::Tls(_) => CliError::Usage(error.to_string()),
        })?;
        let (terminate, interrupt) = (terminate.as_mut(), interrupt.as_mut());
        let (Ok(terminate), Ok(interrupt)) = (terminate, interrupt) else {
            return Err(failed(&"signals can't be received"));
        };
        listener
            .serve(async {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            })
            .await;
        Ok(VerbOutput::done(String::new()))
    })
}

async fn client(arguments: &Arguments) -> Result<Client, CliError> {
    let failed = |error: &dyn std::fmt::Display| {
        CliError::Failed(format!("can't reach a cluster: {error}; name --kubeconfig or --directory"))
    };
    let config = match &arguments.kubeconfig {
        None => Config::infer().await.map_err(|error| failed(&error))?,
        Some(path) => {
            let unread =
                |error| CliError::Usage(format!("{}: {error}; name another --kubeconfig", path.display()));
            let read = ClientConfig::read_from(path).map_err(unread)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(read, &options).await.map_err(|error| failed(&error))?
        }
    };
    let builder = ClientBuilder::try_from(config).map_err(|error| failed(&error))?;
    Ok(builder.with_layer(&NoteAnswers).build())
}
