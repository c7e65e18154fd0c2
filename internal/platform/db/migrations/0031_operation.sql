-- +goose Up

-- Written by package operation.
CREATE TABLE operations (
  id           TEXT PRIMARY KEY,
  owner_id     TEXT NOT NULL,
  site_id      TEXT NOT NULL,   -- empty: it concerns no site, or several
  kind         TEXT NOT NULL,
  uniq         TEXT NOT NULL,   -- at most one open operation has it; empty: any number
  status       TEXT NOT NULL,   -- pending, running, success, failed, canceled
  progress     BIGINT NOT NULL, -- thousandths; -1: unknown
  step         TEXT NOT NULL,   -- where the worker goes on after a crash; its own words
  message      TEXT NOT NULL,
  error        TEXT NOT NULL,
  result       TEXT NOT NULL,   -- JSON, or empty
  created_at   BIGINT NOT NULL,
  completed_at BIGINT NOT NULL
);
CREATE INDEX operations_site ON operations (site_id, id);
CREATE INDEX operations_age ON operations (completed_at) WHERE completed_at > 0;
CREATE UNIQUE INDEX operations_uniq ON operations (uniq) WHERE uniq <> '' AND completed_at = 0;
