//! The effects of TCP connections on messages: delay, delivery after a cut link is restored and long after
//! the caller's timeout, or loss of everything in flight when a connection breaks. A request may be lost or
//! carried out with its reply lost, and the caller cannot distinguish these. The frames of one stream stay
//! in order; all other messages may overtake each other, as do tasks that handle messages.
//!
//! Other transports may also deliver twice: requests and frames arrive a second time, each copy at any
//! time, as long as the connection lives.
//!
//! Not modelled: bandwidth.

use crate::coverage::{Intent, Tally};
use crate::dice::Dice;
use crate::hostility::{Hostility, altered_flow, altered_reply, altered_request};
use crate::parties::{Caller, Destination, Party, Reply, Request, Slot, Unanswered};
use crate::services::Service;
use crate::trace;
use crate::world::{ProcessId, World, lock};
use futures::channel::oneshot;
use futures::future::BoxFuture;
use futures::{FutureExt, select_biased};
use gabion_layout::NodeId;
use gabion_protocol::message::{CoordinatorRequest, Flow, NodeReply, NodeRequest, Purpose};
use gabion_protocol::ports::{Address, Asker};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

/// The origin of a process's requests to itself: no plan of the roles sends frames back to it.
const OWN_ORIGIN: u64 = 0;

/// All connections of the cluster.
pub(crate) struct Network {
    world: Arc<World>,
    state: Mutex<State>,
    tally: Arc<Tally>,
    node_count: usize,
}

struct State {
    machines: Vec<Machine>,
    connections: BTreeMap<u64, Connection>,
    calls: BTreeMap<u64, Call>,
    streams: BTreeMap<u64, VecDeque<Flow>>,
    /// Directions from one machine to another that are cut.
    cuts: BTreeSet<(Slot, Slot)>,
    /// A connection breaks on one message in this many; 0 is never.
    break_one_in: u64,
    /// Machines that are slow to send and to be reached.
    slow: BTreeSet<Slot>,
    /// Whether a message may take seconds.
    is_rough: bool,
    /// One message in this many arrives twice; 0 is never.
    repeat_one_in: u64,
    /// Purposes whose bytes are delayed, as over a slow link: updates overtake them.
    late: BTreeSet<Purpose>,
    hostility: Option<Hostility>,
}

#[derive(Default)]
struct Machine {
    process: Option<ProcessId>,
    service: Option<Service>,
}

#[derive(Clone, Copy)]
struct Connection {
    dialer: Party,
    listener: Party,
}

impl Connection {
    /// The receiver of one direction.
    fn receiver(&self, to_dialer: bool) -> Party {
        if to_dialer {
            self.dialer
        } else {
            self.listener
        }
    }
}

struct Call {
    /// None when the request was lost.
    connection: Option<u64>,
    caller: Caller,
}

enum Message {
    Request {
        call: u64,
        request: Request,
    },
    Reply {
        call: u64,
        reply: Reply,
    },
    Frame {
        stream: u64,
        to_dialer: bool,
    },
    /// A second copy of a frame, without order.
    FrameAgain {
        flow: Flow,
        to_dialer: bool,
    },
}

impl Message {
    /// Whether the receiver is the process that opened the connection.
    fn to_dialer(&self) -> bool {
        match self {
            Self::Request { .. } => false,
            Self::Reply { .. } => true,
            Self::Frame { to_dialer, .. } | Self::FrameAgain { to_dialer, .. } => *to_dialer,
        }
    }
}

/// An ordered sequence of frames to one receiver.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    id: u64,
    from: Slot,
    connection: u64,
    to_dialer: bool,
}

impl Network {
    /// A network of machines. The first one is the coordinator's, the next `node_count` are nodes, all others clients.
    pub(crate) fn new(world: Arc<World>, machines: (usize, usize), tally: Arc<Tally>) -> Arc<Self> {
        let (machine_count, node_count) = machines;
        let machines = (0..machine_count).map(|_| Machine::default()).collect();
        let state = State {
            machines,
            connections: BTreeMap::new(),
            calls: BTreeMap::new(),
            streams: BTreeMap::new(),
            cuts: BTreeSet::new(),
            break_one_in: 0,
            slow: BTreeSet::new(),
            is_rough: false,
            repeat_one_in: 0,
            // Updates wait during the exchange of chunks; slow messages give faults time to occur then.
            late: BTreeSet::from([Purpose::Grouping]),
            hostility: None,
        };
        Arc::new(Self {
            world,
            state: Mutex::new(state),
            tally,
            node_count,
        })
    }

    /// A process starts on a machine; it answers no request before [`Network::serve`].
    pub(crate) fn begin(&self, party: Party) {
        let mut state = lock(&self.state);
        let machine = &mut state.machines[party.slot.0];
        machine.process = Some(party.process);
        machine.service = None;
    }

    pub(crate) fn serve(&self, party: Party, service: Service) {
        let mut state = lock(&self.state);
        let machine = &mut state.machines[party.slot.0];
        if machine.process == Some(party.process) {
            machine.service = Some(service);
        }
    }

    /// A process has ended: its connections break. Some peers are told, others detect it by timeout.
    pub(crate) fn end(&self, party: Party) {
        let (of_it, service) = {
            let mut state = lock(&self.state);
            let machine = &mut state.machines[party.slot.0];
            let mut service = None;
            if machine.process == Some(party.process) {
                machine.process = None;
                service = machine.service.take();
            }
            let of_it = state.connections.iter().filter(|(_, connection)| {
                connection.dialer == party || connection.listener == party
            });
            (of_it.map(|(&id, _)| id).collect::<Vec<u64>>(), service)
        };
        drop(service);
        for connection in of_it {
            let is_told = self.world.roll(|dice| dice.one_in(2));
            self.break_connection(connection, is_told);
        }
    }

    /// Drops all references to processes.
    pub(crate) fn clear(&self) {
        let (machines, calls) = {
            let mut state = lock(&self.state);
            state.connections.clear();
            (
                std::mem::take(&mut state.machines),
                std::mem::take(&mut state.calls),
            )
        };
        drop(machines);
        drop(calls);
    }

    /// Cuts or restores the direction from a machine to another; the way back is a separate one.
    pub(crate) fn cut(&self, from: Slot, to: Slot, is_cut: bool) {
        let mut state = lock(&self.state);
        if is_cut {
            state.cuts.insert((from, to));
        } else {
            state.cuts.remove(&(from, to));
        }
    }

    pub(crate) fn heal_links(&self) {
        let mut state = lock(&self.state);
        state.cuts.clear();
        state.slow.clear();
        state.break_one_in = 0;
        state.is_rough = false;
        state.repeat_one_in = 0;
    }

    /// Delays some messages by seconds, and delivers one in `repeat_one_in` twice; 0 is never.
    pub(crate) fn repeat_messages(&self, repeat_one_in: u64) {
        let mut state = lock(&self.state);
        state.is_rough = true;
        state.repeat_one_in = repeat_one_in;
    }

    /// Delays bytes of a purpose from now on.
    pub(crate) fn thin_out(&self, purpose: Purpose) {
        lock(&self.state).late.insert(purpose);
    }

    /// From now on some peers are hostile.
    pub(crate) fn become_hostile(&self) {
        let hostility = self
            .world
            .roll(|dice| Hostility::draw(self.node_count, dice));
        lock(&self.state).hostility = Some(hostility);
    }

    /// The number of altered messages, if peers are hostile.
    pub(crate) fn altered_count(&self) -> Option<u64> {
        let state = lock(&self.state);
        Some(state.hostility.as_ref()?.altered_count())
    }

    /// An altered message of a machine, if it is hostile and it is time for one.
    fn altered<T>(&self, from: Slot, alter: impl FnOnce(&mut Dice) -> Option<T>) -> Option<T> {
        let mut state = lock(&self.state);
        let hostility = state.hostility.as_mut()?;
        self.world.roll(|dice| hostility.alter(from, alter, dice))
    }

    /// Makes a machine slow, or as fast as others again.
    pub(crate) fn slow_down(&self, slot: Slot, is_slow: bool) {
        let mut state = lock(&self.state);
        if is_slow {
            state.slow.insert(slot);
        } else {
            state.slow.remove(&slot);
        }
    }

    /// Breaks connections on one message in `many`; 0 is never.
    pub(crate) fn set_break_one_in(&self, many: u64) {
        lock(&self.state).break_one_in = many;
    }

    /// Asks a process and waits for its reply, as a caller of the request's role.
    pub(crate) async fn call<R>(
        self: Arc<Self>,
        from: Party,
        to: Slot,
        (request, caller): (Request, impl FnOnce(oneshot::Sender<R>) -> Caller),
        deadline_us: u64,
    ) -> Result<R, Unanswered> {
        if let Request::Node(_, request) = &request {
            self.tally.sent(request);
        }
        let (sender, receiver) = oneshot::channel();
        let call = self.world.fresh();
        let connection = self.dial(from, to);
        lock(&self.state).calls.insert(
            call,
            Call {
                connection,
                caller: caller(sender),
            },
        );
        match connection {
            Some(connection) => {
                // A client takes its update for not begun: TCP delivers no copy later.
                let is_update = matches!(request, Request::Node(_, NodeRequest::Update { .. }));
                if !is_update && self.repeats() {
                    let request = request.clone();
                    self.send(connection, Message::Request { call, request });
                }
                let altered = self.altered(from.slot, |dice| altered_request(&request, dice));
                if let Some(request) = altered {
                    // No call waits for its reply.
                    let call = self.world.fresh();
                    self.send(connection, Message::Request { call, request });
                }
                self.send(connection, Message::Request { call, request });
            }
            None => self.refuse(call),
        }
        let mut late = self.world.sleep(deadline_us).fuse();
        select_biased! {
            reply = receiver.fuse() => reply.map_err(|_| Unanswered::Broken),
            () = late => {
                lock(&self.state).calls.remove(&call);
                Err(Unanswered::Late)
            }
        }
    }

    /// Connects to a machine unless there is a connection. Returns whether it succeeded in time.
    pub(crate) async fn reach(&self, from: Party, to: Slot, deadline_us: u64) -> bool {
        let took_us = self.world.roll(|dice| dice.between(50, 2_000));
        let is_cut = {
            let cuts = &lock(&self.state).cuts;
            cuts.contains(&(from.slot, to)) || cuts.contains(&(to, from.slot))
        };
        if is_cut && !self.is_connected(from, to) {
            self.world.sleep(deadline_us).await;
            return false;
        }
        self.world.sleep(took_us.min(deadline_us)).await;
        self.dial(from, to).is_some()
    }

    fn is_connected(&self, from: Party, to: Slot) -> bool {
        let state = lock(&self.state);
        let mut known = state.connections.values();
        known.any(|known| known.dialer == from && known.listener.slot == to)
    }

    /// Opens a stream of frames to a machine, or over the connection of the process that opened it.
    pub(crate) fn open(&self, from: Party, to: Destination) -> Option<Stream> {
        let (connection, to_dialer) = match to {
            Destination::Machine(slot) => (self.dial(from, slot)?, false),
            Destination::Dialer(connection) => (connection, true),
        };
        let id = self.world.fresh();
        let mut state = lock(&self.state);
        state.connections.contains_key(&connection).then(|| {
            state.streams.insert(id, VecDeque::new());
            Stream {
                id,
                from: from.slot,
                connection,
                to_dialer,
            }
        })
    }

    /// Sends a frame. False when the connection has broken.
    pub(crate) fn push(self: &Arc<Self>, stream: Stream, flow: Flow) -> bool {
        let Stream { id, to_dialer, .. } = stream;
        let again = self.repeats().then(|| flow.clone());
        let altered = self.altered(stream.from, |dice| altered_flow(&flow, dice));
        let again = altered.or(again);
        let purpose = match &flow {
            Flow::Slice { purpose, .. } => Some(*purpose),
            _ => None,
        };
        let is_late = {
            let mut state = lock(&self.state);
            let is_open = state.connections.contains_key(&stream.connection);
            let Some(frames) = state.streams.get_mut(&stream.id).filter(|_| is_open) else {
                return false;
            };
            frames.push_back(flow);
            purpose.is_some_and(|purpose| state.late.contains(&purpose))
        };
        if let Some(flow) = again {
            self.send(stream.connection, Message::FrameAgain { flow, to_dialer });
        }
        let frame = Message::Frame {
            stream: id,
            to_dialer,
        };
        if is_late {
            let delay_us = self.world.roll(|dice| dice.between(100_000, 1_500_000));
            self.send_after(delay_us, stream.connection, frame);
        } else {
            self.send(stream.connection, frame);
        }
        true
    }

    /// The connection of a process to a machine; a new one if there is none. None when no process listens
    /// there.
    fn dial(&self, from: Party, to: Slot) -> Option<u64> {
        let id = self.world.fresh();
        let mut state = lock(&self.state);
        let machine = state.machines.get(to.0)?;
        let process = machine.process?;
        let listener = Party { slot: to, process };
        let same =
            |(_, known): &(&u64, &Connection)| known.dialer == from && known.listener == listener;
        if let Some((&known, _)) = state.connections.iter().find(same) {
            return Some(known);
        }
        let dialer = from;
        state
            .connections
            .insert(id, Connection { dialer, listener });
        Some(id)
    }

    /// No process listens: the caller is told at once, or waits until its deadline.
    fn refuse(self: &Arc<Self>, call: u64) {
        if self.world.roll(|dice| dice.one_in(2)) {
            let network = Arc::clone(self);
            self.world.after(1_000, move || {
                let refused = lock(&network.state).calls.remove(&call);
                drop(refused);
            });
        }
    }

    /// The counts.
    pub(crate) fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Whether the next message arrives twice.
    fn repeats(&self) -> bool {
        let one_in = lock(&self.state).repeat_one_in;
        let repeats = one_in > 0 && self.world.roll(|dice| dice.one_in(one_in));
        self.tally
            .add(|coverage| coverage.repeated_count += u64::from(repeats));
        repeats
    }

    fn send(self: &Arc<Self>, connection: u64, message: Message) {
        let (is_rough, is_slow) = {
            let state = lock(&self.state);
            let ends = state.connections.get(&connection);
            let is_slow = ends.is_some_and(|ends| {
                state.slow.contains(&ends.dialer.slot) || state.slow.contains(&ends.listener.slot)
            });
            (state.is_rough, is_slow)
        };
        let delay_us = self.world.roll(|dice| match dice.below(100) {
            0 if is_rough => dice.between(50_000, 3_000_000),
            _ if is_slow => dice.between(20_000, 200_000),
            0..10 => dice.between(2_000, 50_000),
            _ => dice.between(50, 2_000),
        });
        self.send_after(delay_us, connection, message);
    }

    fn send_after(self: &Arc<Self>, delay_us: u64, connection: u64, message: Message) {
        let network = Arc::clone(self);
        let deliver = move || network.arrive(connection, message);
        self.world.after(delay_us, deliver);
    }

    fn arrive(self: &Arc<Self>, id: u64, message: Message) {
        if let Some(act) = self.world.steps.step() {
            act();
        }
        let (connection, is_cut, break_one_in) = {
            let state = lock(&self.state);
            let Some(&connection) = state.connections.get(&id) else {
                return;
            };
            let (dialer, listener) = (connection.dialer.slot, connection.listener.slot);
            let way = if message.to_dialer() {
                (listener, dialer)
            } else {
                (dialer, listener)
            };
            let is_cut = state.cuts.contains(&way);
            (connection, is_cut, state.break_one_in)
        };
        if is_cut && self.world.roll(|dice| !dice.one_in(20)) {
            // The sender's kernel retransmits for a while.
            let delay_us = self.world.roll(|dice| dice.between(50_000, 1_000_000));
            self.send_after(delay_us, id, message);
        } else if is_cut || (break_one_in > 0 && self.world.roll(|d| d.one_in(break_one_in))) {
            self.world.note("a connection breaks");
            self.break_connection(id, true);
        } else {
            self.deliver(id, connection, message);
        }
    }

    fn deliver(self: &Arc<Self>, id: u64, connection: Connection, message: Message) {
        match message {
            Message::Request { call, request } => self.handle(id, connection, call, request),
            Message::Reply { call, reply } => {
                let call = lock(&self.state).calls.remove(&call);
                if let Some(call) = call {
                    call.caller.hear(reply);
                }
            }
            Message::Frame { stream, to_dialer } => {
                let frame = lock(&self.state)
                    .streams
                    .get_mut(&stream)
                    .and_then(VecDeque::pop_front);
                let service = self.service(connection.receiver(to_dialer));
                if let (Some(frame), Some(service)) = (frame, service) {
                    service.flow(frame);
                }
            }
            Message::FrameAgain { flow, to_dialer } => {
                if let Some(service) = self.service(connection.receiver(to_dialer)) {
                    service.flow(flow);
                }
            }
        }
    }

    fn handle(self: &Arc<Self>, id: u64, connection: Connection, call: u64, request: Request) {
        let party = connection.listener;
        let (traced, intent) = (trace::request(&request), Intent::of(&request));
        let joins = matches!(
            request,
            Request::Coordinator(CoordinatorRequest::BeginJoin { .. })
        );
        let serves = connection.dialer.slot.0 <= self.node_count;
        let asker = if serves { Asker::Member } else { Asker::User };
        let origin = (Address::Origin(id), asker);
        let service = self.service(party);
        let Some(answer) = service.and_then(|service| service.request(request, origin)) else {
            self.refuse(call);
            return;
        };
        let network = Arc::clone(self);
        let (dialer, listener) = (connection.dialer.slot.0, party.slot.0);
        if let Some(request) = &traced {
            let line = format!("{dialer} -> {listener} #{call}: {request}");
            self.world.note(&line);
        }
        if joins {
            self.tally.joins(connection.dialer.slot);
        }
        let handle = async move {
            let reply = answer.await;
            network.tally.answered(intent, party.slot, &reply);
            let altered = network.altered(party.slot, |dice| altered_reply(&reply, dice));
            let reply = altered.unwrap_or(reply);
            if traced.is_some() {
                let line = format!("{dialer} <- {listener} #{call}: {}", trace::reply(&reply));
                network.world.note(&line);
            }
            network.send(id, Message::Reply { call, reply });
        };
        self.world.spawn(party.process, handle.boxed());
    }

    /// A request of a node to itself, without a network.
    pub(crate) fn own(
        &self,
        party: Party,
        node: NodeId,
        request: NodeRequest,
    ) -> Option<BoxFuture<'static, NodeReply>> {
        self.tally.sent(&request);
        if let Some(request) = trace::node_request(&request) {
            self.world
                .note(&format!("{} asks itself: {request}", party.slot.0));
        }
        let origin = (Address::Origin(OWN_ORIGIN), Asker::Member);
        self.service(party)?.node_request(node, request, origin)
    }

    /// The service of a process, while that is the one on its machine.
    pub(crate) fn service(&self, party: Party) -> Option<Service> {
        let state = lock(&self.state);
        let machine = state.machines.get(party.slot.0)?;
        let service = machine.service.as_ref()?;
        (machine.process == Some(party.process)).then(|| service.clone())
    }

    /// Loses all messages in flight. Callers are told, or wait for their deadlines.
    fn break_connection(&self, id: u64, is_told: bool) {
        let lost: Vec<Call> = {
            let mut state = lock(&self.state);
            state.connections.remove(&id);
            if is_told {
                let of_it = |_: &u64, call: &mut Call| call.connection == Some(id);
                let lost = state.calls.extract_if(.., of_it);
                lost.map(|(_, call)| call).collect()
            } else {
                Vec::new()
            }
        };
        drop(lost);
    }
}
