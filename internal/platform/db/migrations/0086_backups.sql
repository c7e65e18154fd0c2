-- +goose Up

-- Written by package backup. A backup outlives its site.
CREATE TABLE backups (
  id           TEXT PRIMARY KEY,
  owner_id     TEXT NOT NULL,
  site_id      TEXT NOT NULL,
  site_name    TEXT NOT NULL,
  type         TEXT NOT NULL,     -- manual, scheduled, before_update, before_restore, before_delete
  status       TEXT NOT NULL,     -- pending, running, completed, failed
  includes     TEXT NOT NULL,     -- config,files,database: what was asked for
  note         TEXT NOT NULL,
  size_bytes   BIGINT NOT NULL,   -- of what it holds
  stored_bytes BIGINT NOT NULL,   -- that it added
  progress     BIGINT NOT NULL,   -- bytes read so far
  manifest     TEXT NOT NULL,     -- object that lists it; empty until completed
  checksum     TEXT NOT NULL,
  base         TEXT NOT NULL,     -- manifests whose objects a running one uses again, with commas
  then_delete  TEXT NOT NULL,     -- operation that deletes the site once it is completed; empty: none
  verified_at  BIGINT NOT NULL,
  error        TEXT NOT NULL,
  created_at   BIGINT NOT NULL,
  completed_at BIGINT NOT NULL,
  expires_at   BIGINT NOT NULL    -- 0: never
);
CREATE INDEX backups_by_site ON backups (site_id, id);
CREATE INDEX backups_by_owner ON backups (owner_id, id);
CREATE INDEX backups_by_expiry ON backups (expires_at) WHERE expires_at > 0;

-- Written by package backup: when a site's backups are due and how long they are kept.
CREATE TABLE backup_schedules (
  site_id  TEXT PRIMARY KEY,
  owner_id TEXT NOT NULL,
  every    TEXT NOT NULL,         -- hourly, daily, weekly
  at       TEXT NOT NULL,         -- 03:00, UTC
  daily    BIGINT NOT NULL,
  weekly   BIGINT NOT NULL,
  monthly  BIGINT NOT NULL,
  next_at  BIGINT NOT NULL,
  warned   BOOLEAN NOT NULL       -- its owner was told that none is verified
);
CREATE INDEX backup_schedules_due ON backup_schedules (next_at);

-- Written by package backup: when the repository was swept last.
CREATE TABLE backup_sweeps (
  id BIGINT PRIMARY KEY,          -- 1
  at BIGINT NOT NULL
);
