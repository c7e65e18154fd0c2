-- +goose Up

-- Written by package job.
CREATE TABLE jobs (
  id          TEXT PRIMARY KEY,
  kind        TEXT NOT NULL,
  queue       TEXT NOT NULL,
  args        TEXT NOT NULL,
  uniq        TEXT,             -- at most one unfinished job has it
  grp         TEXT,             -- at most one job of it runs at a time, in order
  share       TEXT NOT NULL,    -- whose turn it is: claimed fairly over shares
  state       TEXT NOT NULL,    -- ready, running, dead
  attempt     BIGINT NOT NULL,  -- times claimed: the fencing token of its worker
  failures    BIGINT NOT NULL,  -- times it ended in an error or was interrupted by a crash
  run_at      BIGINT NOT NULL,
  lease_until BIGINT NOT NULL,
  canceled    BOOLEAN NOT NULL, -- asked to stop
  error       TEXT NOT NULL,
  created_at  BIGINT NOT NULL
);
CREATE UNIQUE INDEX jobs_uniq ON jobs (uniq) WHERE uniq IS NOT NULL AND state IN ('ready', 'running');
CREATE UNIQUE INDEX jobs_one_running ON jobs (grp) WHERE grp IS NOT NULL AND state = 'running';
CREATE INDEX jobs_due ON jobs (queue, run_at, id) WHERE state = 'ready';
CREATE INDEX jobs_group ON jobs (grp, id) WHERE grp IS NOT NULL;
CREATE INDEX jobs_running ON jobs (queue, lease_until) WHERE state = 'running';
