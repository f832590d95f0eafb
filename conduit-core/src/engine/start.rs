//! The start of a rank's engine.

use super::Engine;
use crate::atomics::Atomics;
use crate::barrier::state::Barriers;
use crate::collectives::calls as collective;
use crate::collectives::state::Collectives;
use crate::kernel::{Kernel, Result};
use crate::memory::Memory;
use crate::messages::Messages;
use crate::messages::flow::{Statistics, When};
use crate::ni::Ni;
use crate::rma::vis::handlers as vis;
use crate::rma::{Rma, signal};
use crate::settings::Settings;
use crate::threads::{Lock, Mode};
use pmi::bootstrap::Bootstrap;

impl<N: Ni + 'static, M: Mode> Engine<N, M> {
    /// Sets up the engine of this rank on a network that has started. Collective. Returns once all
    /// ranks accept messages.
    pub fn start(ni: N, bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Self> {
        let (rank, size) = (ni.rank(), ni.size());
        let plan = settings.credit_plan(size)?;
        let barriers = Barriers::new(rank, size, settings.barrier_radix);
        let (kernel, replies) = Kernel::start(ni, settings, &plan, barriers.cells())?;
        let most = am::limits::max_medium(kernel.job.chunk, collective::MOST_ARGS);
        let mut engine = Self {
            memory: Memory::default(),
            messages: Messages::new(&kernel, &plan, replies),
            rma: Rma::new(),
            atomics: Atomics::of(&kernel),
            barriers,
            collectives: Collectives::new(rank, size, most),
            kernel,
            _mode: M::default(),
        };
        engine.register_own(&collective::handlers())?;
        engine.register_own(&[signal::handler()])?;
        engine.register_own(&vis::handlers())?;
        engine.messages.link(&engine.kernel, &plan)?;
        let job = engine.kernel.compare_settings(bootstrap)?;
        if settings.credit_stats {
            let statistics = Statistics::open(settings, &plan, rank, job)?;
            let credits = &mut engine.messages.credits;
            credits.statistics = Some(Lock::new(statistics));
            credits.write_statistics(&engine.kernel, When::Start);
        }
        engine.kernel.map_controls()?;
        Ok(engine)
    }
}
