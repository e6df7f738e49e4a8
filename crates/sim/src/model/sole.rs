//! Advisory locks and exclusive sessions in the model: who holds them, who is refused, and what becomes of the locks
//! and sessions of clients that are gone.

use super::answer::{Answer, FileNumber, Outcome};
use super::expected::Expected;
use super::files::check_end;
use super::holders::{Dead, Handle, HandleNumber, Left, Sole};
use super::locks::Wanted;
use super::operation::{Access, AloneOperation, LockOperation, LockRequest};
use super::options::Wrong;
use gabion_client::Cause;
use gabion_meta::LockKind;
use std::sync::Arc;

impl Expected {
    /// Changes the advisory locks of a file, or finds one.
    pub(crate) fn lock(&mut self, lock: &LockOperation) -> Outcome {
        let (file, holder) = (self.open(&lock.path)?, lock.holder);
        let is_taken = |mode| {
            let cells = lock.cells.clone();
            let wanted = Wanted {
                holder,
                mode,
                cells,
            };
            self.locks.is_taken(file, &wanted) && self.wrong != Some(Wrong::LocksNeverConflict)
        };
        match lock.change {
            LockRequest::Find(mode) => return Ok(Answer::Found(is_taken(mode))),
            LockRequest::Set(mode) if is_taken(mode) => {
                // As on Linux, a whole-file lock is lost if it cannot get another mode.
                if holder.kind == LockKind::Whole && self.locks.has_other((file, holder), mode) {
                    self.locks.release((file, holder));
                }
                return Ok(Answer::Locked(false));
            }
            LockRequest::Set(mode) => {
                self.locks.set((file, holder), Some(mode), &lock.cells);
                return Ok(Answer::Locked(true));
            }
            LockRequest::Unlock => self.locks.set((file, holder), None, &lock.cells),
            LockRequest::Release => self.locks.release((file, holder)),
        }
        Ok(Answer::Done)
    }

    /// Carries out an operation of a client that alone may write a file.
    pub(crate) fn use_alone(&mut self, alone: &AloneOperation) -> Outcome {
        match alone {
            AloneOperation::Open {
                path,
                client,
                takes_over,
                handle,
            } => {
                let file = self.open(path)?;
                if self.files[&file].is_read_only {
                    return Err(Cause::ReadOnly);
                }
                if self.sole.contains_key(&file) && !takes_over {
                    return Err(Cause::InUse);
                }
                let (handle, client) = (*handle, *client);
                self.sole.insert(file, Sole { handle, left: None });
                self.handles.insert(handle, Handle { file, client });
            }
            AloneOperation::Use(handle, access) => {
                let file = self.handles[handle].file;
                return self.access((file, Some(*handle)), access);
            }
            AloneOperation::End(handle) => self.end_session(*handle, None),
            AloneOperation::Drop(handle) => {
                self.end_session(*handle, Some(Left::told(self.now_us)));
                self.handles.remove(handle);
            }
        }
        Ok(Answer::Done)
    }

    /// The client of a handle ends its session, or leaves it.
    fn end_session(&mut self, handle: HandleNumber, left: Option<Left>) {
        let file = self.handles[&handle].file;
        match self.sole.get_mut(&file) {
            Some(sole) if sole.handle == handle => match left {
                None => drop(self.sole.remove(&file)),
                Some(left) => sole.left = Some(left.after(sole.left)),
            },
            _ => {}
        }
    }

    /// The client that does not live as long as the run dies.
    pub(crate) fn kill_client(&mut self) {
        let (client, left) = (self.mortal, Left::killed(self.now_us));
        self.leave_sessions(left);
        self.handles.retain(|_, handle| handle.client != client);
        self.leave_locks(left);
    }

    /// The client that does not live as long as the run is cut off.
    pub(crate) fn cut_off(&mut self, ms: u64) {
        self.leave_sessions(Left::cut_off(self.now_us, ms));
    }

    /// The client that was cut off has lost its locks. It goes on with its other handles.
    pub(crate) fn lose_locks(&mut self) {
        let client = self.mortal;
        self.leave_locks(Left::told(self.now_us));
        for handle in self.handles.values_mut() {
            if handle.client == client {
                handle.client = self.mortal;
            }
        }
    }

    fn leave_sessions(&mut self, left: Left) {
        for (number, handle) in self.handles.clone() {
            if handle.client == self.mortal {
                self.end_session(number, Some(left));
            }
        }
    }

    fn leave_locks(&mut self, left: Left) {
        let client = self.mortal;
        self.dead = self.locks.has_any(client).then_some(Dead { client, left });
        self.mortal += 1;
    }

    /// Forgets what is free by now for certain, if the cluster has been whole since `whole_us`.
    pub(crate) fn expire(&mut self, whole_us: u64) {
        let now_us = self.now_us;
        let is_over = |left: &Left| left.latest_us(whole_us) <= now_us;
        if let Some(dead) = self.dead.take_if(|dead| is_over(&dead.left)) {
            self.locks.forget_client(dead.client);
        }
        let is_left = |sole: &Sole| !sole.left.as_ref().is_some_and(is_over);
        self.sole.retain(|_, sole| is_left(sole));
    }

    /// Reads or changes a file, by the handle of an exclusive open if there is one.
    pub(crate) fn access(
        &mut self,
        (file, writer): (FileNumber, Option<HandleNumber>),
        access: &Access,
    ) -> Outcome {
        check_end(access)?;
        if self.files[&file].is_write(access) {
            self.check_writer(file, writer)?;
            self.note_write((file, writer), access);
        }
        self.access_anyway(file, access)
    }

    /// A client that was cut off, has renewed its session since and writes has not lost it. A hole may change nothing,
    /// and is no proof then.
    fn note_write(&mut self, (file, writer): (FileNumber, Option<HandleNumber>), access: &Access) {
        let now_us = self.now_us;
        if writer.is_some()
            && !matches!(access, Access::Punch(_))
            && let Some(sole) = self.sole.get_mut(&file)
        {
            let is_back = |left: &mut Left| left.returns_us.is_some_and(|at_us| at_us <= now_us);
            sole.left.take_if(is_back);
        }
    }

    /// Makes an access without a check of which client has the file open exclusively.
    pub(crate) fn access_anyway(&mut self, file: FileNumber, access: &Access) -> Outcome {
        let rules = (self.sizes, self.wrong);
        let file = self.files.get_mut(&file).expect("its name is there");
        Arc::make_mut(file).access(access, rules)
    }

    /// Whether a quota has no room for the growth that an access makes, and so refuses it for this cause.
    pub(crate) fn is_growth_refused(
        &self,
        (file, access): (FileNumber, &Access),
        cause: Cause,
    ) -> bool {
        let mut after = self.clone();
        let is_done = after.access_anyway(file, access).is_ok();
        is_done && cause == Cause::Quota && after.check_room(self).is_err()
    }

    /// Refuses a write while another client has the file, and by a handle whose session is over.
    fn check_writer(&self, file: FileNumber, writer: Option<HandleNumber>) -> Result<(), Cause> {
        let sole = self.sole.get(&file);
        match (writer, sole) {
            _ if self.wrong == Some(Wrong::SessionsExcludeNoClient) => Ok(()),
            (None, None) => Ok(()),
            (None, Some(_)) => Err(Cause::InUse),
            (Some(handle), Some(sole)) if sole.handle == handle => Ok(()),
            (Some(_), _) => Err(Cause::Stale),
        }
    }
}
