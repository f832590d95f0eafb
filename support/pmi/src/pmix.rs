//! PMIx, the interface of Open MPI's `mpirun`, PRRTE and `srun --mpi=pmix`, through the client
//! library `libpmix.so.2`, which is loaded at run time.

mod library;

use std::path::Path;

use crate::bootstrap::{Bootstrap, BootstrapError, check_put};
pub use library::Error;
use library::{Library, Process, Status};

/// A connection to a PMIx server.
#[derive(Debug)]
pub struct Connection {
    library: Library,
    process: Process,
    size: u32,
    fences: u64,
}

impl Connection {
    /// Connects to the server that the environment names. `library` is a file, or a name that the
    /// system's loader looks up. By default, the library is the one that the launcher has loaded,
    /// because libraries of other versions than the server's print complaints, and if there is no
    /// such file, `libpmix.so.2`.
    ///
    /// # Errors
    /// The library cannot be loaded, or there is no server, or it does not state the job's size.
    pub fn from_env(library: Option<&Path>) -> Result<Self, Error> {
        let of_launcher = || crate::ancestors::loaded_pmix();
        let library = library.map(Path::to_owned).or_else(of_launcher);
        let library = Library::load(library.as_deref())?;
        let process = library.init()?;
        let size = library.job_size(&process)?;
        let connection = Self {
            library,
            process,
            size,
            fences: 0,
        };
        match connection.process.rank() < size {
            true => Ok(connection),
            false => Err(Error::Call {
                call: "PMIx_Init",
                reason: format!("rank {} of {size}", connection.process.rank()),
            }),
        }
    }

    fn failed(&self, operation: &'static str) -> impl Fn(Status) -> BootstrapError {
        let rank = self.process.rank();
        move |status| BootstrapError {
            rank,
            operation,
            reason: status.to_string(),
        }
    }
}

impl Bootstrap for Connection {
    fn rank(&self) -> u32 {
        self.process.rank()
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), BootstrapError> {
        check_put(self.process.rank(), key, bytes)?;
        let put = self.library.put(&name(key), bytes);
        put.map_err(self.failed("put"))
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Vec<u8>, BootstrapError> {
        let got = self.library.get(&self.process.peer(rank), &name(key));
        got.map_err(self.failed("get"))
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        let met = self
            .library
            .commit()
            .and_then(|()| self.library.fence(&self.process));
        met.map_err(self.failed("fence"))?;
        self.fences += 1;
        Ok(())
    }

    fn fences(&self) -> u64 {
        self.fences
    }

    fn finalize(&mut self) -> Result<(), BootstrapError> {
        let ended = self.library.finalize();
        ended.map_err(self.failed("finalize"))
    }

    fn abort(&mut self, code: i32, reason: &str) {
        // If the server cannot be reached, the job has ended with it.
        let _ = self.library.abort(code, reason);
    }
}

/// Returns the key's name among those of other users of PMIx in this process, such as MPI.
fn name(key: &str) -> String {
    format!("conduit.{key}")
}
