//! The table of requests: the room that answers each one. A room's answer has the type of its request's reply.

use super::Coordinator;
use super::core::{Answer, Rejection};
use crate::message::{
    Cause, CoordinatorCall, CoordinatorReply, CoordinatorRequest, Denial, USAGE_AGE_MS, ask, routes,
};
use gabion_meta::KeyValue;
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    routes! {
        /// Routes a request to its room, and makes the wire's reply of the room's answer.
        pub(super) async fn route(
            self: &Arc<Self>,
            request: CoordinatorRequest
        ) -> Answer<CoordinatorReply>;
        request: CoordinatorRequest, CoordinatorCall;

        BeginJoin(asked) => self.members.begin_join(asked).await,
        TellChunks(page) => self.members.tell_chunks(page).await,
        SetAside(session) => self.members.set_aside(session),
        EndJoin(end) => self.members.end_join(*end).await,
        Accept(node) => self.members.accept(node),
        Heartbeat(told) => self.heartbeat(&told),
        EndMembership(told) => self.members.end_membership(told).await,
        StoreFailed(failure) => self.members.store_failed(failure).await,
        Suspect(told) => {
            self.members.suspect(told.node);
            Ok(())
        },
        Drain(node) => self.members.drain(node).await,
        Keep(node) => self.members.keep(node).await,
        Nodes => Ok(self.shared.nodes.statuses()),
        Links => Ok(self.shared.nodes.link_rates()),
        Acquire(asked) => self.leases.acquire(asked).await,
        Settling(told) => Ok(self.leases.note_settlement(told.stripe, told.exclusion).await?),
        NoteDegraded(told) => {
            let term = (told.stripe, told.epoch, told.since);
            Ok(self.leases.note_degraded(term, told.chunks).await?)
        },
        NotePhase(told) => self.leases.note_phase(told).await,
        Group(told) => {
            self.grouping.note(told);
            Ok(())
        },
        CreatePool(asked) => self.files.create_pool(asked).await,
        SetQuota(asked) => self.files.set_quota(asked).await,
        Pools => self.files.pools().await,
        Reserves(stripes) => self.files.reserves(stripes).await,
        CommitPool(asked) => self.files.commit_pool(asked.name).await,
        BeginPut(asked) => self.files.begin_put(asked).await,
        ExtendPut(asked) => self.files.extend_put(asked).await,
        PlaceAnew(asked) => self.files.place_anew(asked).await,
        TouchPut(put) => self.files.touch_put(put),
        CommitPut(put) => self.files.commit_put(put).await,
        AbortPut(put) => self.files.abort_own_put(put).await,
        WriteInline(asked) => self.files.write_inline(asked).await,
        BeginReplace(asked) => self.files.begin_replace(asked).await,
        CommitReplace(asked) => self.files.commit_replace(asked).await,
        Ended(stripe) => self.files.ended(stripe).await,
        Lookup(asked) => self.files.lookup(asked.name).await,
        LookupFile(asked) => self.files.lookup_file(asked).await,
        List(page) => self.files.list(page).await,
        Rename(asked) => self.files.rename(asked).await,
        LookupInode(asked) => self.files.lookup_inode(asked).await,
        SetAttributes(asked) => self.files.set_attributes(asked).await,
        StatInode(inode) => self.files.stat_inode(inode).await,
        UserAttributes(inode) => self.files.user_attributes(inode).await,
        Link(asked) => self.files.link(asked).await,
        MakeSymlink(asked) => self.files.make_symlink(asked).await,
        ReadLink(file) => self.files.read_link(file).await,
        ReadDirectory(page) => self.files.read_directory(page).await,
        MakeDirectory(asked) => self.files.make_directory(asked).await,
        RemoveDirectory(asked) => self.files.remove_directory(asked).await,
        RenameDirectory(asked) => self.files.rename_directory(asked).await,
        ExchangeNames(asked) => self.files.exchange_names(asked).await,
        SetDirectoryQuota(asked) => self.files.set_directory_quota(asked).await,
        DirectoryQuota(inode) => self.files.directory_quota(inode).await,
        Grow(asked) => self.files.grow(asked).await,
        OpenExclusive(asked) => self.files.open_exclusive(asked).await,
        RenewExclusive(asked) => self.files.renew_exclusive(asked).await,
        CloseExclusive(asked) => self.files.close_exclusive(asked).await,
        OpenFile(asked) => self.files.open_file(asked).await,
        Token(asked) => self.files.token(asked).await,
        Snapshot(asked) => self.files.snapshot(asked).await,
        RemoveFile(asked) => self.files.remove_file(asked).await,
        OpenSession => self.locks.open().await,
        RenewSession(session) => self.locks.renew(session),
        CloseSession(session) => self.locks.close(session).await,
        ReportFiles(asked) => self.locks.report(&asked),
        SetLock(asked) => self.locks.set(asked).await,
        ReportDamage(report) => self.repair.report_damage(report).await,
        ScrubAll => self.repair.scrub_all().await,
        Hasten(asked) => self.repair.hasten(asked.stripe).await,
        RepairNow(asked) => self.repair_now(asked.scheme).await,
        OrderRepair(order) => self.repair.throttle().order(order).await,
        OrderForm(order) => self.lifecycles.order(order).await,
        Status => self.status().await,
        Usage => self.usage(None).await,
        RecentUsage => self.usage(Some(USAGE_AGE_MS)).await,
        Space => self.space().await,
        Events(asked) => Ok(self.shared.core.ports.event_page(&asked)),
        Changes(place) => self.changes(place).await,
        Recovery(_) => Err(no_recovery()),
    }
}

/// The answer to a question about a recovery.
fn no_recovery() -> Rejection {
    let sentence = "this coordinator serves the cluster and recovers nothing; start one with --recover on the restored \
        metadata, and ask that one";
    Denial::new(Cause::Unsupported, sentence).into()
}
