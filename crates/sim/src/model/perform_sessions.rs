//! Operations with advisory locks and exclusive sessions on the cluster, by the real clients, and the death and the
//! isolation of a client.

use super::answer::Answer;
use super::holders::{LASTING, LOST_AFTER_MS, RETURN_MS};
use super::locks::{Wanted, range_of};
use super::operation::{AloneOperation, LockOperation, LockRequest};
use super::perform::{Outcome, done};
use super::runner::{MORTAL, Runner, connect};
use crate::ports::COORDINATOR;
use bytes::Bytes;
use gabion_client::{ClientError, LockOutcome, LockPatience, TakeOver};
use gabion_meta::{LockChange, LockMode};

/// The process of all locks. Nothing depends on it.
const PROCESS: u32 = 1;

impl LockOperation {
    /// What it asks the cluster for.
    fn change(&self, mode: Option<LockMode>) -> LockChange {
        LockChange {
            owner: self.holder.owner(),
            mode,
            range: range_of(&self.cells),
            process: PROCESS,
        }
    }

    fn wanted(&self, mode: LockMode) -> Wanted {
        Wanted {
            holder: self.holder,
            mode,
            cells: self.cells.clone(),
        }
    }
}

impl Runner {
    /// Changes the advisory locks of a file, or finds one.
    pub(crate) async fn lock(&mut self, lock: &LockOperation) -> Outcome {
        let client = self.client_of(lock.holder.client);
        let known = self.expected.file_at(&lock.path);
        let path = self.expected.absolute(&lock.path);
        let file = client.open(&path).await?;
        let Some(number) = known else {
            return Ok(Answer::Wrong("a file that is not there".to_owned()));
        };
        let key = (lock.holder.client, number);
        let handles = self.lock_handles.entry(key);
        let handle = handles.or_insert_with(|| client.locks(file.put_id()));
        let handle = handle.clone();
        let locks = &self.expected.locks;
        match lock.change {
            LockRequest::Set(mode) => {
                let set = handle.set(lock.change(Some(mode)), LockPatience::None);
                Ok(match set.await? {
                    LockOutcome::Done => Answer::Locked(true),
                    LockOutcome::Held(found)
                        if locks.is_obstacle(number, &lock.wanted(mode), (&found.lock, None)) =>
                    {
                        Answer::Locked(false)
                    }
                    other => Answer::Wrong(format!("{other:?}")),
                })
            }
            LockRequest::Find(mode) => {
                let change = lock.change(Some(mode));
                let wanted = lock.wanted(mode);
                Ok(match handle.find(change).await? {
                    None => Answer::Found(false),
                    Some((found, is_own))
                        if locks.is_obstacle(number, &wanted, (&found.lock, Some(is_own))) =>
                    {
                        Answer::Found(true)
                    }
                    Some(other) => Answer::Wrong(format!("{other:?}")),
                })
            }
            LockRequest::Unlock => {
                let set = handle.set(lock.change(None), LockPatience::None);
                set.await.map(|_| Answer::Done)
            }
            LockRequest::Release => handle.release(lock.holder.owner()).await.map(done),
        }
    }

    /// Carries out an operation of a client that alone may write a file.
    pub(crate) async fn use_alone(&mut self, alone: &AloneOperation) -> Outcome {
        match alone {
            AloneOperation::Open {
                path,
                client,
                takes_over,
                handle,
            } => {
                let take_over = if *takes_over {
                    TakeOver::Now
                } else {
                    TakeOver::IfAbandoned
                };
                let client = self.client_of(*client);
                let path = self.expected.absolute(path);
                let file = client.open_exclusive(&path, take_over).await?;
                self.alone.insert(*handle, file);
                Ok(Answer::Done)
            }
            AloneOperation::Use(handle, access) => {
                let file = self.alone[handle].clone();
                let number = self.expected.handles[handle].file;
                self.access(&file, Some(number), access).await
            }
            AloneOperation::End(handle) => self.alone[handle].end_session().await.map(done),
            AloneOperation::Drop(handle) => {
                self.alone.remove(handle);
                Ok(Answer::Done)
            }
        }
    }

    /// Kills the client that does not live as long as the run, and starts another one.
    pub(crate) async fn kill_client(&mut self) -> Outcome {
        self.cluster.kill_client(MORTAL);
        self.forget_handles();
        self.mortal = connect(&self.cluster, MORTAL).await;
        Ok(Answer::Done)
    }

    /// Cuts this client off for a time. Returns whether it still has its locks. A client that has lost them writes no
    /// more through the handles of that time.
    pub(crate) async fn cut_off(&self, ms: u64) -> Outcome {
        let (world, network) = (&self.cluster.world, &self.cluster.network);
        let slot = self.mortal.party.slot;
        let cut = |is_cut| {
            network.cut(slot, COORDINATOR, is_cut);
            network.cut(COORDINATOR, slot, is_cut);
        };
        let before: Vec<_> = self.expected.locks.holders();
        let is_mortal = |client| !LASTING.contains(&client);
        let mut files: Vec<_> = before
            .into_iter()
            .filter(|(_, holder)| is_mortal(holder.client))
            .map(|(file, holder)| (holder.client, file))
            .collect();
        files.dedup();
        cut(true);
        world.sleep(ms * 1_000).await;
        cut(false);
        if ms < LOST_AFTER_MS {
            // Its lease may end before the next renewal.
            world.sleep(RETURN_MS * 1_000).await;
        }
        let mut leased = None;
        for key in files {
            let Some(handle) = self.lock_handles.get(&key) else {
                // It is of a client that is dead.
                continue;
            };
            let is_leased = match handle.check().await {
                Ok(()) => true,
                Err(ClientError::LocksLost(_)) => false,
                Err(error) => return Err(error),
            };
            if *leased.get_or_insert(is_leased) != is_leased {
                let what = "the locks in some files are lost, and those in others are not";
                return Ok(Answer::Wrong(what.to_owned()));
            }
            let path = self.expected.absolute(self.expected.paths_of(key.1)[0]);
            let file = self.mortal.client.open(&path).await?;
            let bytes = Bytes::from_static(b"late");
            if !is_leased && file.with_locks(handle).write(0, bytes).await.is_ok() {
                let what = "a write succeeds after its locks were lost";
                return Ok(Answer::Wrong(what.to_owned()));
            }
        }
        Ok(Answer::Leased(leased.unwrap_or(true)))
    }
}
