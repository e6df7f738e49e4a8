//! The command line of `gabion init` and `gabion cert`.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct InitOptions {
    /// Directory of the coordinator's data; its directory 'ca' gets the authority
    #[arg(long, value_name = "DIR", default_value = "gabion-coordinator")]
    pub(crate) data: PathBuf,
}

#[derive(Subcommand, Debug)]
pub(crate) enum CertCommand {
    /// Create a key and a certificate in a directory, for --tls
    Issue(IssueOptions),
    /// Print a join token, which a new process exchanges once for its certificate
    Token(TokenOptions),
    /// List issued certificates and tokens with serial, expiry and state
    Ls(AuthorityOption),
    /// Revoke a certificate or a token: within seconds the cluster's processes refuse it and close its connections
    Revoke {
        /// Serial, as 'gabion cert ls' shows it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        serial: String,
        #[command(flatten)]
        authority: AuthorityOption,
    },
}

#[derive(Args, Debug)]
pub(crate) struct AuthorityOption {
    /// Directory of the certificate authority [default: that of the cluster in --dir, or gabion-coordinator/ca]
    #[arg(long, value_name = "DIR")]
    pub(crate) authority: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct IssueOptions {
    /// Role of the process
    #[arg(value_enum)]
    pub(crate) holder: Holder,
    /// Id of a node that joined before; a new node gets an id, and a certificate with it, when it joins
    #[arg(long, value_name = "NUMBER")]
    pub(crate) node: Option<u32>,
    /// Directory for the key and the certificate; existing ones are replaced
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Days until the certificate expires; a process renews its certificate before
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) days: u32,
    #[command(flatten)]
    pub(crate) authority: AuthorityOption,
}

#[derive(Args, Debug)]
pub(crate) struct TokenOptions {
    /// Role of the process
    #[arg(value_enum, default_value_t = Holder::Node)]
    pub(crate) holder: Holder,
    /// Id of a node that joined before and lost its certificate
    #[arg(long, value_name = "NUMBER")]
    pub(crate) node: Option<u32>,
    /// Minutes until the token expires
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_080))]
    pub(crate) minutes: u32,
    #[command(flatten)]
    pub(crate) authority: AuthorityOption,
}

/// The role of a process in its certificate.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    /// A storage node
    Node,
    /// A gateway or another program that stores and reads files
    Client,
    /// A person who may also change pools, nodes and repairs
    Operator,
    /// A coordinator
    Coordinator,
}
