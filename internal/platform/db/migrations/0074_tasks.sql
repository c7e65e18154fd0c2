-- +goose Up

-- Written by package task: what runs beside the programs that answer: workers, which always
-- run, and commands by a schedule. The rows are those of the deployment that the site
-- serves, once app_declared says that they were written for it.
CREATE TABLE app_tasks (
  site_id       TEXT NOT NULL,
  kind          TEXT NOT NULL,     -- worker, cron
  name          TEXT NOT NULL,
  deployment_id TEXT NOT NULL,
  owner_id      TEXT NOT NULL,
  schedule      TEXT NOT NULL,     -- of a cron
  command       TEXT NOT NULL,     -- JSON: argv, shell, dir
  next_at       BIGINT NOT NULL,   -- of a cron
  node          TEXT NOT NULL,     -- where a worker runs; empty: nowhere yet
  lease_until   BIGINT NOT NULL,
  PRIMARY KEY (site_id, kind, name)
);
CREATE INDEX app_tasks_due ON app_tasks (kind, next_at);

-- Written by package task: for which deployment of a site app_tasks were written.
CREATE TABLE app_declared (
  site_id       TEXT PRIMARY KEY,
  deployment_id TEXT NOT NULL
);

-- When a deployment's release command has succeeded; 0: it has not, or there is none.
ALTER TABLE deployments ADD COLUMN released_at BIGINT NOT NULL DEFAULT 0;
