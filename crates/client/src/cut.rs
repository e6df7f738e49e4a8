//! The cut of a read: the primary's, or, if the primary cannot give one, the one that a quorum of
//! the stripe's nodes agrees on.

use crate::attempts::Attempts;
use crate::error::ClientError;
use crate::extent::Extent;
use crate::file::File;
use crate::layout::Layout;
use crate::reading::Reading;
use crate::retry::may_ask_again;
use futures::{FutureExt, select_biased};
use gabion_layout::{ChunkRange, StripeRecord};
use gabion_protocol::quorum::{Agreement, agree, ask_quorum};
use std::pin::pin;

/// Time limit of the primary before the quorum is asked too, and pause before it is asked again, in
/// milliseconds.
const QUORUM_AFTER_MS: u64 = 200;
/// Time limit of a quorum's nodes, in milliseconds.
const QUORUM_DEADLINE_MS: u64 = 500;

impl File {
    /// Chooses a cut, with as many requests to the primary as needed; false when another stripe
    /// replaces this one in between. If the primary is silent or cannot serve, the stripe's nodes
    /// are asked; a read through the code in a pool with append phases waits for the primary, which
    /// knows what logs have beyond parity.
    pub(crate) async fn take_cut(
        &self,
        extent: Extent,
        settle: bool,
        reading: &mut Reading,
        attempts: &mut Attempts,
    ) -> Result<bool, ClientError> {
        let mut layout = self.layout_of(extent.in_file()).await?;
        let id = layout.find(&extent).map(|stripe| stripe.id);
        loop {
            let stripe = match layout.find(&extent) {
                Some(stripe) if Some(stripe.id) == id => stripe,
                _ => return Ok(false),
            };
            let decode = if reading.reconstructs {
                ranges_of(&layout, stripe, &extent)?
            } else {
                Vec::new()
            };
            let how = (settle, decode);
            let refusal = {
                let mark = self.ask_mark(&layout, stripe, how, attempts.attempt_ms());
                let agreement = async {
                    loop {
                        self.client.ports().sleep_ms(QUORUM_AFTER_MS).await;
                        let agreed = self.ask_agreement(&layout, stripe, reading).await;
                        if let Some(agreement) = agreed {
                            break agreement;
                        }
                    }
                };
                let agreed = select_biased! {
                    asked = pin!(mark.fuse()) => Err(asked),
                    agreement = pin!(agreement.fuse()) => Ok(agreement),
                };
                match agreed {
                    Ok(agreement) => {
                        reading.agree_on(&agreement, stripe);
                        return Ok(true);
                    }
                    Err(asked) => asked,
                }
            };
            let refusal = match refusal {
                Ok((epoch, mark, appended)) => {
                    reading.rely_on((epoch, mark), appended);
                    return Ok(true);
                }
                Err(refusal) => refusal,
            };
            if !may_ask_again(&refusal) {
                let what = attempts.what().to_owned();
                let refusal = refusal.into();
                return Err(ClientError::Node { what, refusal });
            }
            if self.agree(&layout, stripe, reading).await {
                return Ok(true);
            }
            attempts.pause(refusal).await?;
            self.refresh_if_possible(extent.in_file()).await?;
            layout = self.layout_of(extent.in_file()).await?;
        }
    }

    /// Takes the cut that a quorum agrees on, if any.
    pub(crate) async fn agree(
        &self,
        layout: &Layout,
        stripe: &StripeRecord,
        reading: &mut Reading,
    ) -> bool {
        let agreement = self.ask_agreement(layout, stripe, reading).await;
        if let Some(agreement) = &agreement {
            reading.agree_on(agreement, stripe);
        }
        agreement.is_some()
    }

    async fn ask_agreement(
        &self,
        layout: &Layout,
        stripe: &StripeRecord,
        reading: &Reading,
    ) -> Option<Agreement> {
        if reading.reconstructs && layout.spec(stripe).append.is_some() {
            // Only a primary knows which bytes are in logs beyond parity.
            return None;
        }
        let ports = self.client.ports();
        let data_count = self.code(stripe).k();
        let mut without = self.client.ailing();
        without.extend(reading.avoided_nodes(stripe));
        loop {
            let asked = ask_quorum(ports, stripe, data_count, &without, QUORUM_DEADLINE_MS).await;
            match agree(stripe, data_count, &asked) {
                Ok(agreement) => return Some(agreement),
                // The nodes to avoid may be all that there are.
                Err(_) if !without.is_empty() => without.clear(),
                Err(_) => return None,
            }
        }
    }
}

/// The ranges of a stripe that a read wants.
fn ranges_of(
    layout: &Layout,
    stripe: &StripeRecord,
    extent: &Extent,
) -> Result<Vec<ChunkRange>, ClientError> {
    let ranges = layout.geometry(stripe)?.split(extent.range);
    ranges.map_err(|error| ClientError::Broken(error.to_string()))
}
