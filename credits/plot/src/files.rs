//! The search for a job's files, and their reading.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use credits::statistics::{Log, ParseError, Problem};

use crate::Job;
use crate::job::Track;

/// The reason why there is no picture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file's path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The picture cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The picture's path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// There are no statistics to draw.
    #[error(
        "no credit statistics in {place}: expected files credits-{job}-<rank>.csv, which ranks write with \
         GASNET_PORTAL_CREDIT_STATS=1"
    )]
    NoFiles {
        /// The paths that were searched.
        place: String,
        /// The requested job, or a placeholder.
        job: String,
    },
    /// A file violates the format.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The files belong to more than one job.
    #[error("found files of {} jobs, expected one: choose it with --job ({})", jobs.len(), some(jobs))]
    SeveralJobs {
        /// The names of the jobs.
        jobs: Vec<String>,
    },
    /// Two files of a job contradict each other.
    #[error("{} and {} contradict each other: their first lines may differ only in the rank", one.display(), other.display())]
    Contradiction {
        /// The first file.
        one: PathBuf,
        /// The second file.
        other: PathBuf,
    },
    /// Two files of a job belong to the same rank.
    #[error("{} and {} both belong to rank {rank}", one.display(), other.display())]
    SameRank {
        /// The rank.
        rank: u32,
        /// The first file.
        one: PathBuf,
        /// The second file.
        other: PathBuf,
    },
    /// The requested rank has no file.
    #[error("rank {rank} has no file")]
    NoSuchRank {
        /// The rank.
        rank: u32,
    },
    /// The drawing library reported an error.
    #[error("cannot draw the picture: {0}")]
    Draw(String),
}

/// A problem with a picture that is drawn anyway.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The last line of a file was cut off and is omitted.
    CutOff {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// A file ends before its first row and is omitted.
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Some ranks have no file.
    Missing {
        /// The number of ranks without a file.
        missing: u32,
        /// The number of ranks in the job.
        ranks: u32,
        /// The first rank without a file.
        first: u32,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::CutOff { path, line } => write!(
                f,
                "{}:{line}: the last line is cut off and omitted; was the rank killed?",
                path.display()
            ),
            Warning::Empty { path } => write!(
                f,
                "{} ends before its first row and is omitted",
                path.display()
            ),
            Warning::Missing {
                missing,
                ranks,
                first,
            } => write!(
                f,
                "{missing} of {ranks} ranks have no file, the first is rank {first}"
            ),
        }
    }
}

/// Joins the first few names of a list.
fn some(names: &[String]) -> String {
    const MOST: usize = 5;
    let mut text = names
        .iter()
        .take(MOST)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > MOST {
        text.push_str(", …");
    }
    text
}

/// Reads the statistics of a job from the files in `paths`, and from all statistics files in the
/// directories in `paths`. If `job` is given, a directory's files of other jobs are ignored.
///
/// # Errors
/// Fails if there are no files, or if files cannot be read, violate the format, or belong to
/// several jobs.
pub fn read(paths: &[PathBuf], job: Option<&str>) -> Result<(Job, Vec<Warning>), Error> {
    let mut warnings = Vec::new();
    let mut logs = Vec::new();
    for path in find(paths, job)? {
        let text = std::fs::read_to_string(&path).map_err(|source| Error::Read {
            path: path.clone(),
            source,
        })?;
        match Log::parse(&path.display().to_string(), &text) {
            Ok(log) => {
                let line = log.cut_off;
                if job.is_none_or(|job| log.header.job == job) {
                    warnings.extend(line.map(|line| Warning::CutOff {
                        path: path.clone(),
                        line,
                    }));
                    logs.push((path, log.header.clone(), Track::new(&log)));
                }
            }
            Err(error) if error.problem == Problem::CutOff => {
                warnings.push(Warning::Empty { path });
            }
            Err(error) => return Err(error.into()),
        }
    }
    let Some((first, header, _)) = logs.first().cloned() else {
        let place: Vec<_> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(Error::NoFiles {
            place: some(&place),
            job: job.unwrap_or("<job>").to_owned(),
        });
    };
    let mut jobs: Vec<_> = logs.iter().map(|(_, log, _)| log.job.clone()).collect();
    jobs.sort_unstable();
    jobs.dedup();
    if jobs.len() > 1 {
        return Err(Error::SeveralJobs { jobs });
    }
    let mut by_rank = BTreeMap::new();
    for (path, mut log, track) in logs {
        let rank = std::mem::replace(&mut log.rank, header.rank);
        if log != header {
            return Err(Error::Contradiction {
                one: first,
                other: path,
            });
        }
        if let Some((one, _)) = by_rank.insert(rank, (path.clone(), track)) {
            return Err(Error::SameRank {
                rank,
                one,
                other: path,
            });
        }
    }
    let missing = header.ranks - by_rank.len() as u32;
    if missing > 0 {
        let first = (0..).find(|rank| !by_rank.contains_key(rank)).unwrap_or(0);
        let ranks = header.ranks;
        warnings.push(Warning::Missing {
            missing,
            ranks,
            first,
        });
    }
    let tracks = by_rank.into_values().map(|(_, track)| track).collect();
    Ok((Job::new(header, tracks), warnings))
}

/// Returns the files in `paths`, and the files with matching names in its directories, sorted.
fn find(paths: &[PathBuf], job: Option<&str>) -> Result<Vec<PathBuf>, Error> {
    let begins = match job {
        Some(job) => format!("credits-{job}-"),
        None => "credits-".to_owned(),
    };
    let refused = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Read { path, source }
    };
    let mut files = Vec::new();
    for path in paths {
        if !path.metadata().map_err(refused(path))?.is_dir() {
            files.push(path.clone());
            continue;
        }
        for entry in path.read_dir().map_err(refused(path))? {
            let entry = entry.map_err(refused(path))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&begins) && name.ends_with(".csv") {
                files.push(entry.path());
            }
        }
    }
    files.sort_unstable();
    files.dedup();
    Ok(files)
}
