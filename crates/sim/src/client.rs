//! A client of the simulated cluster: puts files, updates them in place and asks primaries, by the
//! same messages and planners as the real one. It gives up sooner: whether a try that failed took
//! place is for the history to find out, so each try has a name of its own ([`crate::attempt`]).

use crate::cells::{CELL_BYTES, UpdateId, fill};
use crate::ledger::Ledger;
use crate::network::{Reply, Request, Service};
use crate::ports::SimPorts;
use crate::world::lock;
use bytes::Bytes;
use futures::FutureExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::{BoxFuture, ready};
use gabion_codec::Code;
use gabion_exec::{Sink, Source};
use gabion_layout::{
    ByteRange, ChunkIndex, ChunkRange, Epoch, Geometry, NodeId, NodePlace, Sequence, StripeId,
    StripeRecord, Topology,
};
use gabion_meta::PoolRecord;
use gabion_plan::{Part, Plan};
use gabion_planner::{Stripe, encode, update};
use gabion_protocol::initiate::{OwnPart, PartFailed, RunTerms, run_plan, substitutes};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Effect, FileLayout, Flow, NodeReply, NodeRequest,
    Purpose, ReadCut, Refusal, RunId,
};
use gabion_protocol::ports::{Address, CallError, Ports};
use gabion_protocol::primary::{UPDATE_SLICE_BYTES, failed_nodes};
use gabion_protocol::run::{LocalIo, RunContext, run_part};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// How long the coordinator may take.
const COORDINATOR_DEADLINE_MS: u64 = 5_000;
/// How long a node may take for new bytes.
const STAGE_DEADLINE_MS: u64 = 3_000;
/// How long a primary may take, which may have to settle first.
const PRIMARY_DEADLINE_MS: u64 = 15_000;
/// How long a plan of a client may take.
pub(crate) const PLAN_DEADLINE_MS: u64 = 5_000;
/// Slices of the client's plans, small enough that a chunk is several.
pub(crate) const SLICE_BYTES: u64 = 1 << 10;
/// How often a request follows a hint about who the primary is.
const REDIRECT_COUNT_MAX: u32 = 4;

/// A client.
pub(crate) struct Client {
    pub(crate) ports: Arc<SimPorts>,
    pub(crate) ledger: Arc<Ledger>,
    desk: Arc<Desk>,
    /// Whether a request may arrive a second time.
    pub(crate) expects_repeats: bool,
    primaries: Mutex<BTreeMap<StripeId, NodeId>>,
}

/// Where frames for a client's runs arrive.
#[derive(Default)]
pub(crate) struct Desk {
    runs: Mutex<BTreeMap<RunId, UnboundedSender<Flow>>>,
}

impl Service for Desk {
    fn request(&self, _: Request, _: Address) -> BoxFuture<'static, Reply> {
        let refusal = Refusal::Invalid("a client serves nothing".to_owned());
        ready(Reply::Node(NodeReply::Refused(refusal))).boxed()
    }

    fn flow(&self, flow: Flow) {
        if let Some(run) = lock(&self.runs).get(&flow.run()) {
            // The part may have ended before its last frames.
            let _ = run.unbounded_send(flow);
        }
    }

    fn node(&self) -> Option<NodeId> {
        None
    }
}

/// The code and the shape of a stripe.
pub(crate) fn shape(pool: &PoolRecord, stripe: &StripeRecord) -> (Code, Geometry) {
    let code: Code = pool.spec.code.parse().expect("pools have known codes");
    let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), stripe.chunk_bytes);
    (code, geometry.expect("stripes have possible shapes"))
}

/// The bytes of cells.
pub(crate) fn byte_range(cells: &Range<u64>) -> ByteRange {
    let length = (cells.end - cells.start) * CELL_BYTES;
    ByteRange::new(cells.start * CELL_BYTES, length)
}

impl Client {
    pub(crate) fn new(
        ports: Arc<SimPorts>,
        ledger: Arc<Ledger>,
        desk: Arc<Desk>,
        expects_repeats: bool,
    ) -> Arc<Self> {
        let primaries = Mutex::default();
        Arc::new(Self {
            ports,
            ledger,
            desk,
            expects_repeats,
            primaries,
        })
    }

    /// Asks the coordinator.
    pub(crate) async fn ask(
        &self,
        request: CoordinatorRequest,
    ) -> Result<CoordinatorReply, CallError> {
        let call = self
            .ports
            .call_coordinator(request, COORDINATOR_DEADLINE_MS);
        call.await
    }

    /// A file's layout, if there is such a file and the coordinator answers.
    pub(crate) async fn lookup(&self, name: &str) -> Option<FileLayout> {
        let called_us = self.ports.world().now_us();
        let request = CoordinatorRequest::Lookup {
            name: name.to_owned(),
        };
        match self.ask(request).await {
            Ok(CoordinatorReply::File(layout)) => {
                self.ledger.looked_up(name, layout.file.put, called_us);
                self.ports.learn_nodes(&layout.nodes);
                Some(layout)
            }
            _ => None,
        }
    }

    /// The names of all files, if the coordinator answers.
    pub(crate) async fn list(&self) -> Option<Vec<String>> {
        let called_us = self.ports.world().now_us();
        let prefix = String::new();
        match self.ask(CoordinatorRequest::List { prefix }).await {
            Ok(CoordinatorReply::Files(files)) => {
                let puts = files.iter().map(|file| (file.name.clone(), file.put));
                self.ledger.listed(&puts.collect::<Vec<_>>(), called_us);
                Some(files.into_iter().map(|file| file.name).collect())
            }
            _ => None,
        }
    }

    /// Removes a file. Whether it is gone is not known on an error.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), String> {
        let Some(layout) = self.lookup(name).await else {
            return Err("it cannot be looked up".to_owned());
        };
        let file = layout.file.put;
        let number = self.ledger.removing(name, file);
        let name = name.to_owned();
        let request = CoordinatorRequest::RemoveFile { name, file };
        match self.ask(request).await {
            Ok(CoordinatorReply::Done) => {
                self.ledger.removed(&layout.file.name, number);
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    }

    /// Stores a new file. Whether the put was committed is not known on an error.
    pub(crate) async fn put(&self, name: &str, size_bytes: u64) -> Result<(), String> {
        let called_us = self.ports.world().now_us();
        let request = CoordinatorRequest::BeginPut {
            name: name.to_owned(),
            pool: None,
            size_bytes,
        };
        let begun = self.ask(request).await.map_err(|error| error.to_string())?;
        let CoordinatorReply::Put {
            put,
            pool,
            stripes,
            nodes,
        } = begun
        else {
            return Err(format!("{begun:?}"));
        };
        self.ports.learn_nodes(&nodes);
        let (first, mut end) = (self.ledger.name(), 0);
        let places = stripes.iter().map(|stripe| {
            let start = end;
            let (_, geometry) = shape(&pool, stripe);
            end += geometry.stripe_bytes() / CELL_BYTES;
            (stripe.id, start..end)
        });
        let places: Vec<(StripeId, Range<u64>)> = places.collect();
        self.ledger.putting((name, put), first, &places, called_us);
        for (stripe, (_, cells)) in stripes.iter().zip(places) {
            if let Err(failed) = self.store_stripe(&pool, stripe, (first, cells)).await {
                let given_up = self.ask(CoordinatorRequest::AbortPut(put)).await;
                return Err(format!("{failed}, {:?}", given_up.is_ok()));
            }
        }
        match self.ask(CoordinatorRequest::CommitPut(put)).await {
            Ok(CoordinatorReply::Done) => {
                self.ledger.put_is_done(name, put, first, called_us);
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    }

    async fn store_stripe(
        &self,
        pool: &PoolRecord,
        record: &StripeRecord,
        (first, cells): (UpdateId, Range<u64>),
    ) -> Result<(), PartFailed> {
        let (code, geometry) = shape(pool, record);
        let data = Bytes::from(fill(first, cells.start, cells.end - cells.start));
        let left_out: Vec<_> = record.stale.iter().map(|stale| stale.chunk).collect();
        let stripe = Stripe {
            id: record.id,
            code: &code,
            geometry,
            placement: &record.nodes,
            lost: &left_out,
        };
        let plan = encode::direct(&stripe, NodeId::CLIENT, SLICE_BYTES);
        let keepings = update::keepings(pool.spec.update, pool.spec.reserve, record.chunk_bytes);
        let plan = plan.expect("every stripe can be encoded").kept(keepings);
        let terms = RunTerms {
            run: RunId(self.ports.random()),
            epoch: Epoch(0),
            generation: record.generation,
            cut: ReadCut::Committed(Epoch(0), Sequence(0)),
            effect: Effect::Install { base: Sequence(0) },
            purpose: Purpose::Encode,
            spread_ms: 0,
            deadline_ms: PLAN_DEADLINE_MS,
            stall_ms: None,
        };
        let chunk_bytes = geometry.chunk_bytes() as usize;
        let io = Memory::default();
        for chunk in geometry.data_chunks() {
            let start = chunk.at() * chunk_bytes;
            let bytes = data.slice(start..start + chunk_bytes);
            lock(&io.inputs).insert(chunk, bytes);
        }
        self.run(&plan, &terms, Arc::new(io)).await.map(|_| ())
    }

    /// Runs a plan in which the client takes part.
    pub(crate) async fn run(
        &self,
        plan: &Plan,
        terms: &RunTerms,
        io: Arc<Memory>,
    ) -> Result<BTreeMap<NodeId, Sequence>, PartFailed> {
        let (sender, flows) = unbounded();
        lock(&self.desk.runs).insert(terms.run, sender);
        let ports = Arc::clone(&self.ports);
        let context = RunContext {
            run: terms.run,
            origin: Address::Node(NodeId::CLIENT),
            purpose: terms.purpose,
            spread_ms: 0,
            deadline_ms: terms.deadline_ms,
            stall_ms: None,
        };
        let own = |part| own_part(ports, io, part, context, flows);
        let done = run_plan(&*self.ports, plan, terms, own).await;
        lock(&self.desk.runs).remove(&terms.run);
        let mut as_of = done?;
        as_of.remove(&NodeId::CLIENT);
        Ok(as_of)
    }

    pub(crate) async fn stage(
        &self,
        (run, stripe): (RunId, StripeId),
        node: NodeId,
        range: ChunkRange,
        bytes: Bytes,
    ) -> Result<Sequence, Refusal> {
        let request = NodeRequest::Stage {
            run,
            stripe,
            chunk: range.chunk,
            offset: range.range.offset,
            bytes,
        };
        match self.ports.call_node(node, request, STAGE_DEADLINE_MS).await {
            Ok(NodeReply::Staged { newest }) => Ok(newest),
            Ok(NodeReply::Refused(refusal)) => Err(refusal),
            Ok(other) => Err(Refusal::Invalid(format!("{other:?}"))),
            Err(error) => Err(Refusal::Unavailable(error.peer)),
        }
    }

    /// The committed mark of a stripe and the term that vouches for it.
    pub(crate) async fn mark(
        &self,
        record: &StripeRecord,
        (settle, reconstruct): (bool, bool),
    ) -> Result<(Epoch, Sequence), Refusal> {
        let stripe = record.id;
        let request = NodeRequest::Mark {
            stripe,
            settle,
            reconstruct,
        };
        match self.ask_primary(record, request).await? {
            NodeReply::Mark { epoch, sequence } => Ok((epoch, sequence)),
            other => Err(Refusal::Invalid(format!("{other:?}"))),
        }
    }

    /// Asks whoever is the primary, or one of the stripe's nodes if that is not known.
    pub(crate) async fn ask_primary(
        &self,
        record: &StripeRecord,
        request: NodeRequest,
    ) -> Result<NodeReply, Refusal> {
        let known = lock(&self.primaries).get(&record.id).copied();
        let any = self.ports.world().roll(|dice| *dice.pick(&record.nodes));
        let mut node = known.unwrap_or(any);
        for _ in 0..REDIRECT_COUNT_MAX {
            let call = self
                .ports
                .call_node(node, request.clone(), PRIMARY_DEADLINE_MS);
            let refusal = match call.await {
                Ok(
                    NodeReply::Refused(Refusal::NotPrimary(other))
                    | NodeReply::NotBegun(Refusal::NotPrimary(other)),
                ) => {
                    node = other;
                    continue;
                }
                Ok(NodeReply::Refused(refusal)) => refusal,
                Ok(unbegun @ NodeReply::NotBegun(_)) => {
                    lock(&self.primaries).remove(&record.id);
                    return Ok(unbegun);
                }
                Ok(reply) => {
                    lock(&self.primaries).insert(record.id, node);
                    return Ok(reply);
                }
                Err(error) => Refusal::Unavailable(error.peer),
            };
            // The next request tries its luck elsewhere.
            lock(&self.primaries).remove(&record.id);
            return Err(refusal);
        }
        Err(Refusal::NotPrimary(node))
    }
}

/// Who acts for the lost chunks that an update writes, as far as the layout tells.
pub(crate) fn substitutes_of(
    file: &FileLayout,
    record: &StripeRecord,
    ranges: &[ChunkRange],
) -> Result<Vec<(ChunkIndex, NodeId)>, Refusal> {
    let (code, geometry) = shape(file.pool_of(record), record);
    let failed = failed_nodes(&file.nodes);
    let is_lost =
        |chunk: &ChunkIndex| record.is_stale(*chunk) || failed.contains(&record.nodes[chunk.at()]);
    let lost: Vec<ChunkIndex> = record.chunks().filter(is_lost).collect();
    let stripe = Stripe {
        id: record.id,
        code: &code,
        geometry,
        placement: &record.nodes,
        lost: &lost,
    };
    let places = file.nodes.iter().map(|status| NodePlace {
        node: status.node,
        rack: status.rack,
    });
    let topology = Topology::new(places).expect("the coordinator lists each node once");
    let scheme = update::scheme(file.pool_of(record).spec.update);
    match scheme.plan(&stripe, &topology, ranges, UPDATE_SLICE_BYTES) {
        Ok(plan) => Ok(substitutes(&plan)),
        Err(error) => Err(Refusal::Invalid(error.to_string())),
    }
}

fn own_part(
    ports: Arc<SimPorts>,
    io: Arc<Memory>,
    part: Part,
    context: RunContext,
    mut flows: UnboundedReceiver<Flow>,
) -> OwnPart {
    let run = async move { run_part(&*ports, &*io, &part, context, &mut flows).await };
    run.boxed()
}

/// The client's end of its plans: new bytes go out of memory, bytes that were read into it.
#[derive(Default)]
pub(crate) struct Memory {
    inputs: Mutex<BTreeMap<ChunkIndex, Bytes>>,
    delivered: Mutex<BTreeMap<(ChunkIndex, u64), Bytes>>,
}

impl Memory {
    /// The delivered bytes of a range; none when some are missing.
    pub(crate) fn delivered(&self, wanted: ChunkRange) -> Option<Vec<u8>> {
        let delivered = lock(&self.delivered);
        let mut bytes = Vec::with_capacity(wanted.range.length as usize);
        while (bytes.len() as u64) < wanted.range.length {
            let at = wanted.range.offset + bytes.len() as u64;
            bytes.extend_from_slice(delivered.get(&(wanted.chunk, at))?);
        }
        Some(bytes)
    }
}

impl LocalIo for Memory {
    fn fetch(
        &self,
        source: Source,
        range: ByteRange,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        let Source::Input(chunk) = source else {
            return ready(Err(Refusal::Invalid("a client stores nothing".to_owned()))).boxed();
        };
        let span = range.offset as usize..range.end() as usize;
        let bytes = lock(&self.inputs)[&chunk].slice(span);
        ready(Ok(bytes)).boxed()
    }

    fn store(
        &self,
        sink: Sink,
        range: ByteRange,
        bytes: Bytes,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        let Sink::Deliver(chunk) = sink else {
            return ready(Err(Refusal::Invalid("a client stores nothing".to_owned()))).boxed();
        };
        lock(&self.delivered).insert((chunk, range.offset), bytes);
        ready(Ok(())).boxed()
    }
}
