//! The engine on a PostgreSQL server of its own: lost answers, the leadership, outages. The conformance of engines is
//! tested with the others', in `meta`.

mod fixture;
mod leadership;
mod lost_answers;
mod outages;
